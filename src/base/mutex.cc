// CondVar: waits on a Mutex whose lock the caller holds and gets back.
#include "base/mutex.h"

#include <algorithm>

namespace bs {
namespace {

// Far beyond any deadline, and near enough that "now + timeout" cannot overflow.
constexpr Duration kLongestWait = std::chrono::hours(24 * 365 * 50);

}  // namespace

void CondVar::Wait(Mutex* mutex) {
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();
}

bool CondVar::WaitFor(Mutex* mutex, Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  const std::cv_status status = condition_.wait_for(lock, std::min(timeout, kLongestWait));
  lock.release();
  return status == std::cv_status::no_timeout;
}

bool CondVar::WaitForTrue(Mutex* mutex, Duration timeout, const bool& condition) {
  // Else the thread would sleep for the slack of the kernel's timers, about 70 microseconds.
  if (timeout <= Duration::zero()) return condition;
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  const bool result = condition_.wait_for(lock, std::min(timeout, kLongestWait),
                                          [&condition] { return condition; });
  lock.release();
  return result;
}

}  // namespace bs
