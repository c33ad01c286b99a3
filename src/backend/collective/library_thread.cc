// Callbacks, posts and pauses of a thread that calls a library.
#include "backend/collective/library_thread.h"

#include <chrono>
#include <utility>

namespace bs::backend::collective {
namespace {

// Between two looks of a thread that does not spin.
constexpr Duration kBetweenLooks = std::chrono::microseconds(50);
// Longer than a process runs.
constexpr Duration kForEver = std::chrono::hours(24 * 365 * 10);

}  // namespace

bool SumCallbacks::Refuses(Executor* executor, Done* done) const {
  if (failure_.ok()) return false;
  executor->Post([done = std::move(*done), status = failure_] { done(status); });
  return true;
}

void SumCallbacks::End(const std::vector<uint64_t>& sequences) {
  for (const uint64_t sequence : sequences) {
    const auto at = pending_.find(sequence);
    if (at == pending_.end()) continue;
    const Done done = std::move(at->second);
    pending_.erase(at);
    ++num_ended_;
    done(Status::Ok());
  }
}

void SumCallbacks::EndAll() {
  for (const auto& [sequence, done] : std::exchange(pending_, {})) done(failure_);
}

void SumCallbacks::Close() {
  is_closed_ = true;
  std::exchange(pending_, {}).clear();
}

void WayBack::Post(Duration wait, Task task) {
  Use idle = Use::kNone;
  if (!use_.compare_exchange_strong(idle, Use::kPosting)) return;
  if (wait == Duration::zero()) {
    executor_->Post(std::move(task));
  } else {
    executor_->PostAt(executor_->Now() + wait, std::move(task));
  }
  use_ = Use::kNone;
}

bool WayBack::Abandon() {
  Use idle = Use::kNone;
  return use_.compare_exchange_strong(idle, Use::kAbandoned);
}

void LookPace::Worked(TimePoint begun, TimePoint now) {
  if (begun > idle_since_) spin_.Paused(begun - idle_since_);
  spin_.Worked(now - begun);
  idle_since_ = now;
}

void LookPace::Again(Executor* thread, TimePoint now, Task look) const {
  if (Idle(now) < spin_.window()) return thread->Post(std::move(look));
  thread->PostAt(now + kBetweenLooks, std::move(look));
}

void LeaveBehind(std::unique_ptr<LoopThread> thread, Task keeps) {
  LoopThread* const left_behind = thread.release();
  left_behind->PostAt(left_behind->Now() + kForEver, std::move(keeps));
}

}  // namespace bs::backend::collective
