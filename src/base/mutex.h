// Mutex, MutexLock and CondVar with Clang's thread-safety annotations.
//
// Mutexes live in src/base only (a tidy test holds this); everything above posts to executors.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/types.h"

#if defined(__clang__)
#define BS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define BS_THREAD_ANNOTATION(x)
#endif
#define BS_GUARDED_BY(x) BS_THREAD_ANNOTATION(guarded_by(x))
#define BS_REQUIRES(...) BS_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))

namespace bs {

class BS_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() = default;
  void Lock() BS_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() BS_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class BS_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) BS_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() BS_THREAD_ANNOTATION(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;
  ~CondVar() = default;

  // REQUIRES: the caller holds `mutex`.  May wake without cause: test the condition in a loop.
  void Wait(Mutex* mutex) BS_REQUIRES(mutex);
  // Wait with a deadline: returns false if `timeout` passed first.
  bool WaitFor(Mutex* mutex, Duration timeout) BS_REQUIRES(mutex);
  // Waits until `condition`, which `mutex` guards, is true or `timeout` passed; wake-ups without
  // cause do not prolong it.  With no time it only looks, and never sleeps.  Returns `condition`.
  bool WaitForTrue(Mutex* mutex, Duration timeout, const bool& condition) BS_REQUIRES(mutex);
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace bs
