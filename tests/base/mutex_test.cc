// Mutex and CondVar: exclusion, and waits that end.
#include "base/mutex.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace bs {
namespace {

using std::chrono::milliseconds;

TEST(Mutex, ThreadsDoNotLoseUpdates) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const MutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(CondVar, WaitSeesWritesOfTheNotifier) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread notifier([&] {
    const MutexLock lock(&mutex);
    ready = true;
    changed.NotifyAll();
  });
  {
    const MutexLock lock(&mutex);
    while (!ready) changed.Wait(&mutex);
    EXPECT_TRUE(ready);
  }
  notifier.join();
}

TEST(CondVar, WaitForEndsWithoutANotifier) {
  Mutex mutex;
  CondVar changed;
  const bool never = false;
  const MutexLock lock(&mutex);
  while (changed.WaitFor(&mutex, milliseconds(1))) {
  }
  EXPECT_FALSE(changed.WaitForTrue(&mutex, milliseconds(1), never));
  EXPECT_FALSE(changed.WaitForTrue(&mutex, Duration::min(), never));
}

// Returns how often this thread has slept.
int64_t Sleeps() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

TEST(CondVar, AWaitOfNoTimeDoesNotSleep) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  const MutexLock lock(&mutex);
  const int64_t before = Sleeps();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(changed.WaitForTrue(&mutex, Duration::zero(), ready));
  }
  EXPECT_LT(Sleeps() - before, 50) << "a page that is read from a disk counts too";
  ready = true;
  EXPECT_TRUE(changed.WaitForTrue(&mutex, Duration::zero(), ready));
}

TEST(CondVar, LongestTimeoutDoesNotOverflow) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread notifier([&] {
    const MutexLock lock(&mutex);
    ready = true;
    changed.NotifyAll();
  });
  {
    const MutexLock lock(&mutex);
    EXPECT_TRUE(changed.WaitForTrue(&mutex, Duration::max(), ready));
  }
  notifier.join();
}

}  // namespace
}  // namespace bs
