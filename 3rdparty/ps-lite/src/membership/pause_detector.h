// PauseDetector: tells a pause of this process from silence of other nodes.
//
// A process that was stopped, swapped out or suspended finds every deadline over when it goes on.
// Yet the other nodes may have sent all the time, or were suspended with it.  So it counts their
// silence from the end of its own pause.
#pragma once

#include <algorithm>

#include "base/types.h"

namespace ps {

// Not thread-safe.
class PauseDetector {
 public:
  // `interval`: the time between calls of LastPauseEnd; `timeout`: how long other nodes may be
  // silent.
  PauseDetector(bs::Duration interval, bs::Duration timeout, bs::TimePoint now)
      : patience_(std::max(timeout / 2, 2 * interval)), last_(now) {}

  // Returns the end of the last pause of this process; before it no message could be received.
  bs::TimePoint LastPauseEnd(bs::TimePoint now) {
    if (now - last_ > patience_) since_ = now;
    last_ = now;
    return since_;
  }

 private:
  const bs::Duration patience_;  // more time than this between two calls is a pause
  bs::TimePoint last_;
  bs::TimePoint since_{};
};

}  // namespace ps
