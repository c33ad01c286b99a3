// Spin: whether a thread that has nothing to do looks for work for a while before it sleeps.
//
// The kernel takes 5 to 30 us to wake a thread, most of it where its processor sleeps too (in a
// virtual machine).  Threads that answer each other pay it again and again.  A thread with little
// work at a time and short pauses is sooner at work if it does not sleep.  A thread with long
// pauses, or on a processor that other threads want, would spin for nothing.  A thread with more
// work gains little, and keeps its processor from threads that do their part meanwhile.  So a
// thread spins where that has paid: behind little work and short pauses.  It demands more short
// pauses the more often it has spun for nothing.
//
// Confined to its thread.
#pragma once

#include <algorithm>

#include "base/types.h"

namespace bs {

class Spin {
 public:
  // Bounds of the number of short pauses in a row after which the next pause counts as short too.
  static constexpr int kFewest = 8;
  static constexpr int kMost = 8192;
  // After this many right spins in a row, half as many short pauses are enough again.
  static constexpr int kRight = 64;

  // Work between two pauses may take `longest` divided by this.
  static constexpr int kWorkShare = 4;

  // Never for longer than `longest`; 0: never.
  explicit Spin(Duration longest) : longest_(longest) {}

  bool enabled() const { return longest_ > Duration::zero(); }
  // Returns how long to look for work now, after Worked().
  Duration window() const { return short_pauses_ >= wanted_ ? longest_ : Duration::zero(); }
  // The thread worked for `work` without a pause, and waits for work now.
  void Worked(Duration work) {
    if (work > longest_ / kWorkShare) short_pauses_ = 0;
  }
  // There was nothing to do for `pause`.
  void Paused(Duration pause) {
    const bool spun = window() > Duration::zero();
    if (pause <= longest_) {
      short_pauses_ = std::min(short_pauses_ + 1, kMost);
      if (!spun || ++right_ < kRight) return;
      wanted_ = std::max(wanted_ / 2, kFewest);
    } else {
      short_pauses_ = 0;
      if (spun) wanted_ = std::min(wanted_ * 2, kMost);
    }
    right_ = 0;
  }

 private:
  const Duration longest_;
  int short_pauses_ = 0;  // in a row
  int wanted_ = kFewest;  // of them
  int right_ = 0;         // since it was wrong, or since fewer were wanted
};

}  // namespace bs
