// Notification: a flag under a lock and a condition to wait on.
#include "base/notification.h"

namespace bs {

// Notifies under the lock: a waiter may destroy this object as soon as it sees the flag.
void Notification::Notify() {
  const MutexLock lock(&mutex_);
  notified_ = true;
  changed_.NotifyAll();
}

bool Notification::HasBeenNotified() const {
  const MutexLock lock(&mutex_);
  return notified_;
}

bool Notification::WaitFor(Duration timeout) const {
  const MutexLock lock(&mutex_);
  return changed_.WaitForTrue(&mutex_, timeout, notified_);
}

void Notification::Wait() const {
  const MutexLock lock(&mutex_);
  while (!notified_) changed_.Wait(&mutex_);
}

}  // namespace bs
