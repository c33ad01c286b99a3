// Steps: how often a worker has gone through its tensors, for metrics.
//
// A step is a round of its largest tensor, which a model uses once in each.  Confined to the
// worker's executor.
#pragma once

#include <cstdint>

#include "bytescheduler/types.h"

namespace bs::worker {

class Steps {
 public:
  // The sum of a tensor is there.
  void Summed(Key key, uint64_t size_bytes, TimePoint now);

  uint64_t tensors() const { return tensors_; }
  uint64_t count() const { return count_; }
  // Of the latest step; 0 before the second.
  Duration latest() const { return latest_; }

 private:
  Key largest_ = 0;
  uint64_t largest_bytes_ = 0;
  uint64_t tensors_ = 0;
  uint64_t count_ = 0;  // 0: there is no largest yet
  TimePoint end_{};     // of the latest
  Duration latest_{};
};

}  // namespace bs::worker
