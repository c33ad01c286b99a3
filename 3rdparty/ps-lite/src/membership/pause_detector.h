// Since when this process has been able to hear others.
//
// Who was stopped, swapped out or suspended finds every deadline over when he goes on, though the
// others may have spoken all the time, or were suspended with him: he gives them a new one.
#pragma once

#include <algorithm>

#include "bytescheduler/types.h"

namespace ps {

// Not thread-safe.
class PauseDetector {
 public:
  // `interval`: how often `Since` will be called; `timeout`: how long others may be silent.
  PauseDetector(bs::Duration interval, bs::Duration timeout, bs::TimePoint now)
      : patience_(std::max(timeout / 2, 2 * interval)), last_(now) {}

  // Returns the end of our last pause: before it we could not hear anybody.
  bs::TimePoint LastPauseEnd(bs::TimePoint now) {
    if (now - last_ > patience_) since_ = now;
    last_ = now;
    return since_;
  }

 private:
  const bs::Duration patience_;  // a longer time between two calls is a pause
  bs::TimePoint last_;
  bs::TimePoint since_{};
};

}  // namespace ps
