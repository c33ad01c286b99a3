// Tasks with pauses between them, and what a thread takes of its processor in these.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <thread>

#include "base/executor.h"
#include "base/notification.h"
#include "base/spin.h"

namespace bs {

// Runs `task` on `executor` and waits for it.
inline void RunAndWait(Executor* executor, Task task) {
  Notification done;
  executor->Post([&] {
    task();
    done.Notify();
  });
  done.Wait();
}

// Tasks that come one at a time, with a moment in which there is nothing to do before the next.
inline void PostApart(Executor* executor, int number) {
  for (int i = 0; i < number; ++i) {
    RunAndWait(executor, [] {});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Seconds of processor that the executor's thread takes in a pause of 50 ms, behind shorter ones
// that it may learn from.  (Sleeps, as nothing is what it waits for.)
inline double ProcessorInAPause(Executor* executor) {
  const auto so_far = [&] {
    timespec now{};
    RunAndWait(executor, [&] { EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0); });
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  PostApart(executor, 2 * Spin::kFewest);
  const double before = so_far();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return so_far() - before;
}

// Returns true if the one takes far more processor time than the other.  That may take a while
// where other processes want the processors.
inline bool TakesMoreInPauses(Executor* one, Executor* other) {
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    if (ProcessorInAPause(one) > 5 * ProcessorInAPause(other)) return true;
  }
  return false;
}

}  // namespace bs
