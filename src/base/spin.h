// Spin: whether a thread that has nothing to do looks for work for a while before it sleeps.
//
// To wake a thread takes the kernel 5 to 30 us, most of it where its processor sleeps too (in a
// virtual machine); and threads that answer each other pay it again and again.  One that has little
// to do at a time and short pauses is sooner at work if it does not sleep.  One whose pauses are
// long, or whose processor others want, would spin for nothing; and one with more to do gains
// little, and keeps a processor from those that do their part meanwhile.  So it spins where that
// has paid: behind little work and short pauses, and the more of them the more often it was for
// nothing.
//
// Confined to its thread.
#pragma once

#include <algorithm>

#include "bytescheduler/types.h"

namespace bs {

class Spin {
 public:
  // After at least so many short pauses in a row, and at most after so many, the next is taken to
  // be short too.
  static constexpr int kFewest = 8;
  static constexpr int kMost = 8192;
  // So often in a row it was right to spin, and half as many are enough again.
  static constexpr int kRight = 64;

  // Of `longest`, work may take so much.
  static constexpr int kWorkShare = 4;

  // Never for longer than `longest`; 0: never.
  explicit Spin(Duration longest) : longest_(longest) {}

  bool enabled() const { return longest_ > Duration::zero(); }
  // How long to look for work now, after Worked().
  Duration window() const { return short_pauses_ >= wanted_ ? longest_ : Duration::zero(); }
  // The thread worked for so long, without a pause, and waits for work now.
  void Worked(Duration work) {
    if (work > longest_ / kWorkShare) short_pauses_ = 0;
  }
  // There was nothing to do for so long.
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
