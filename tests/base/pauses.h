// Tasks with pauses between them, and how often a thread slept in these.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
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

// How often the executor's thread sleeps in so many pauses, after some that it may learn from.
inline int64_t SleepsInPauses(Executor* executor, int number) {
  const auto so_far = [&] {
    rusage used{};
    RunAndWait(executor, [&] { EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0); });
    return used.ru_nvcsw;
  };
  PostApart(executor, Spin::kFewest);
  const int64_t before = so_far();
  PostApart(executor, number);
  return so_far() - before;
}

}  // namespace bs
