// StockValue: the value of one key of stock workers, and its answers.  The value changes in two
// ways: it becomes a sum, or the hosting process updates it with a gradient.
//
// Confined to its shard's executor; never blocks.  May throw std::bad_alloc; then it is as it was.
#pragma once

#include <memory>
#include <string>

#include "base/executor.h"
#include "job/view.h"
#include "ps/message.h"
#include "server/memory/sum_buffer.h"
#include "server/optimizer/hosted_updates.h"
#include "server/stock/stock_request.h"
#include "server/stock/stock_shape.h"

namespace bs::server {

// Memory for sums and gradients of a key.
struct StockGradient {
  std::shared_ptr<SumBuffer> memory;  // owners: the slot and the answers in flight
  StockSum sum;
};

class StockValue {
 public:
  // Where its memory lives and to how many workers its answers go.
  struct Place {
    int numa_node = 0;
    const job::View* view = nullptr;  // outlives the value
  };
  using Done = HostedUpdates::Done;

  StockValue(Place place, uint64_t key, const StockShape& shape);
  StockValue(const StockValue&) = delete;
  StockValue& operator=(const StockValue&) = delete;
  ~StockValue() = default;

  // Takes the values of a first push.
  void Initialise(const StockCall& call, float threshold);
  // Makes `gradient` empty memory that no answer shows.  `wide`: of float32 even if float16 is
  // pushed.
  void Prepare(bool wide, StockGradient* gradient) const;
  // value := sum.  Leaves other memory in `sum`.
  void Replace(StockGradient* sum);
  // Returns the bytes that Update needs beside the bytes in use.
  uint64_t UpdateBytes(bool wide) const;
  // Has the value updated; answers show the old value until `done`, which runs on `back`, is ok.
  // REQUIRES: one at a time; the hosting process is there.
  void Update(HostedUpdates* hosted, const HostedUpdates::Optimizer& optimizer,
              const StockGradient& gradient, Executor* back, Done done);
  // All, or the rows that `call` wants.  REQUIRES: the call fits.
  ps::Message Answer(StockCall* call) const;

 private:
  using Memory = std::shared_ptr<SumBuffer>;

  // The memory that an update reads and writes; kept until it is over, whatever happens to the
  // value.
  struct Job {
    std::string about;
    StockGradient gradient;
    Memory before;
    Memory after;
    bool wide = false;
  };

  Memory Make(uint64_t num_elements, DType dtype) const;
  void PrepareWeights(bool wide);
  void Publish(const Job& job);
  // value := the elements of `from`, copied or rounded.
  void Take(const std::byte* from, bool wide);
  ps::Frame GatherRows(const StockCall& call) const;

  const Place place_;
  const uint64_t key_;
  const StockShape shape_;
  const std::string about_;  // its description for the optimizer
  Memory value_;             // shown by answers
  Memory spare_;             // of an earlier value; may still be leaving
  // Where updates work, if not in memory that answers can show: float32 that float16 is rounded
  // from, rows with their flags.
  Memory weights_;
  bool weights_wide_ = false;
};

}  // namespace bs::server
