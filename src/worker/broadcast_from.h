// BroadcastFrom: one broadcast of a value from any worker, made of existing operations.
//
// A key's first broadcast declares it, which gives every worker rank 0's bytes.  Any further
// broadcast, and the first from another root, is a round of sums in which all but the root push
// zeros.  The elements are uint8, whose sums with zero are exact.
//
// The operations own the object; the operations of a key run in the order of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "worker/operation.h"

namespace bs::worker {

class BroadcastFrom {
 public:
  explicit BroadcastFrom(std::span<std::byte> value);

  // False if the system has no memory for a second `value`.
  bool has_memory() const { return other_ != nullptr; }

  struct Place {
    bool first = false;  // the key is not declared yet
    int32_t rank = 0;
    int32_t root = 0;
  };
  // `done` runs when the last of them has ended, with the first error.
  // REQUIRES: has_memory().
  static std::vector<Operation> Operations(const std::shared_ptr<BroadcastFrom>& call,
                                           const Place& place, Worker::Done done);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::span<std::byte> other() const { return {other_.get(), value_.size()}; }
  // Returns one of the callbacks that `done` waits for.
  static Worker::Done End(const std::shared_ptr<BroadcastFrom>& call);
  void OnEnd(Status status);

  const std::span<std::byte> value_;
  // Zeros that a worker pushes; on the root, received bytes that it does not need.
  const std::unique_ptr<std::byte, Free> other_;
  Worker::Done done_;
  int pending_ = 0;
  Status failure_;
};

}  // namespace bs::worker
