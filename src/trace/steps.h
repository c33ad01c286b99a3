// Steps: how often a worker has gone through its tensors, and how long the latest steps took.
//
// A step is a round of its largest tensor, which a model uses once in each step.  If that tensor
// has not come for long, the largest tensor still in use replaces it.  Confined to the worker's
// executor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace bs::trace {

class Steps {
 public:
  // Steps whose lengths are kept.
  static constexpr uint64_t kKept = 64;
  // The largest tensor is out of use after this many times the sums of a step without it.
  static constexpr uint64_t kFrozen = 16;
  // Sums in a step, while its largest tensor has come once.
  static constexpr uint64_t kUnknown = 64;

  // The sum of a tensor is there.
  void Summed(Key key, uint64_t size_bytes, TimePoint now);

  uint64_t tensors() const { return tensors_; }
  uint64_t count() const { return count_; }
  // Length of the latest step; 0 before the second.
  Duration latest() const { return latest_; }
  // Returns the kept steps that have a length, the oldest first.
  std::vector<StepTime> kept() const;

 private:
  Key largest_ = 0;
  uint64_t largest_bytes_ = 0;
  uint64_t tensors_ = 0;
  uint64_t latest_at_ = 0;  // of tensors_: the latest round of the largest
  uint64_t a_step_ = 0;     // sums from the round before to that round
  uint64_t count_ = 0;      // 0: there is no largest yet
  TimePoint end_{};         // of the latest
  Duration latest_{};
  std::array<Duration, kKept> lengths_{};  // of step n at n % kKept; 0: it has none
};

}  // namespace bs::trace
