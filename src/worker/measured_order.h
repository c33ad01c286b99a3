// MeasuredOrder: learns the order in which tensors are needed and shares it among the workers.
//
// Rank 0 decides, as it does about placement.  It publishes the order that it has learned
// (core/ready_order.h) as the first value of two keys of the engine's own.  The other workers look
// it up when they have seen as many steps, so all use the same numbers.  No worker waits for
// another, because the caller's numbers hold until then.  Workers whose keys differ use the numbers
// of their own keys.  Where nothing can be published (stock servers, one worker) each uses its own
// order.
//
// Confined to the worker's executor.  Never fails the worker: after an error the caller's numbers
// stay, and a line of the log says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"
#include "core/ready_order.h"
#include "worker/broadcast.h"
#include "worker/operation_context.h"

namespace bs::worker {

// The keys of the count of numbers, and of the numbers.  No caller may use them or larger keys.
inline constexpr Key kOrderHeaderKey = UINT64_MAX - 1;
inline constexpr Key kOrderKey = UINT64_MAX;

class MeasuredOrder {
 public:
  using Numbers = std::vector<core::Renumbered>;
  using Ended = UniqueFunction<void(Numbers)>;
  struct Options {
    bool alone = false;            // each worker for itself
    uint64_t partition_bytes = 0;  // of the published order; a multiple of kAlignBytes
  };

  // The objects that `context` points to must outlive this; its `fail` is not used.
  MeasuredOrder(const OperationContext& context, const Options& options, const Logger& log);
  MeasuredOrder(const MeasuredOrder&) = delete;
  MeasuredOrder& operator=(const MeasuredOrder&) = delete;
  ~MeasuredOrder() = default;

  // A push-pull is ready.  Returns true, once, when that was enough: then Settle.
  bool Note(const core::ReadyOrder::Call& call, TimePoint now);
  // `ended` gets the numbers that count from now on, none if the caller's stay.  It runs once, also
  // inside the call, and may destroy this.  REQUIRES: Note has returned true; called once.
  void Settle(Ended ended);

 private:
  void Publish();
  void Fetch();
  void FetchNumbers();
  // Moves `value_` under `key`, from rank 0 to this worker if this is another worker.
  void Move(Key key, UniqueFunction<void()> moved);
  void SayNotShared(const Status& why) const;
  void End(Numbers numbers);
  void Finish(Numbers numbers);

  OperationContext context_;
  const Options options_;
  const Logger log_;
  std::unique_ptr<core::ReadyOrder> learning_ = std::make_unique<core::ReadyOrder>();
  core::ReadyOrder::Lesson lesson_;
  std::vector<std::byte> value_;
  std::unique_ptr<Broadcast> broadcast_;
  Ended ended_;
};

// A count, and so many numbers, as bytes for the wire (little-endian), and back.
std::vector<std::byte> EncodeCount(uint64_t count);
std::vector<std::byte> Encode(const MeasuredOrder::Numbers& numbers);
// Nothing if there cannot be so many.  REQUIRES: as many bytes as of EncodeCount.
std::optional<uint64_t> DecodeCount(std::span<const std::byte> bytes);
// REQUIRES: whole numbers.
MeasuredOrder::Numbers DecodeNumbers(std::span<const std::byte> bytes);

}  // namespace bs::worker
