// Notification: one thread announces an event once, and other threads wait for it.
#pragma once

#include "base/mutex.h"

namespace bs {

// Thread-safe.  Notify() may be called more than once; later calls do nothing.
class Notification {
 public:
  void Notify();
  bool HasBeenNotified() const;
  // Blocks until Notify(), or until `timeout` passed; returns whether Notify() was called.
  bool WaitFor(Duration timeout) const;
  void Wait() const;

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool notified_ BS_GUARDED_BY(mutex_) = false;
};

}  // namespace bs
