// Ends calls, at the latest at their deadline.
#include "backend/kvstore/open_calls.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "ps/text.h"

namespace bs::backend {
namespace {

// How often the oldest call is looked at: some times before its deadline.
constexpr Duration kLookInterval = std::chrono::seconds(5);
constexpr int kLeastLooks = 4;

}  // namespace

std::string Describe(const CallName& name) {
  std::string text = std::string(name.verb) + " key=" + std::to_string(name.key);
  if (!name.place) return text;
  return text + " round=" + std::to_string(name.place->round) +
         " partition=" + std::to_string(name.place->partition) + " to server " +
         std::to_string(name.place->server);
}

OpenCalls::OpenCalls(Executor* executor, Duration deadline, std::string waits_for,
                     const Logger& log)
    : executor_(executor),
      deadline_(deadline),
      look_interval_(std::min(kLookInterval, deadline / kLeastLooks)),
      waits_for_(std::move(waits_for)),
      log_(log) {}

OpenCalls::~OpenCalls() {
  BS_CHECK(pending_ == 0);
  if (timer_ != 0) executor_->Cancel(timer_);
}

OpenCalls::Id OpenCalls::Add(const CallName& name, Done done) {
  const Id id = next_id_++;
  ++pending_;
  if (!failure_.ok()) {
    Finish(std::move(done), failure_);
    return id;
  }
  calls_.emplace_hint(calls_.end(), id, Call{name, executor_->Now(), std::move(done)});
  if (timer_ == 0) Arm();
  return id;
}

void OpenCalls::End(Id id, const Status& status) {
  auto call = calls_.extract(id);
  if (!call.empty()) Finish(std::move(call.mapped().done), status);
}

void OpenCalls::FailAll(const Status& status) {
  BS_CHECK(!status.ok());
  if (failure_.ok()) failure_ = status;
  for (auto& [id, call] : std::exchange(calls_, {})) Finish(std::move(call.done), status);
}

void OpenCalls::Finish(Done done, const Status& status) {
  executor_->Post([this, done = std::move(done), status] {
    --pending_;
    done(status);
  });
}

void OpenCalls::Arm() {
  if (calls_.empty()) return;
  const TimePoint look = executor_->Now() + look_interval_;
  const TimePoint end = calls_.begin()->second.began + deadline_;
  timer_ = executor_->PostAt(std::min(look, end), [this] { CheckOldest(); });
}

void OpenCalls::CheckOldest() {
  timer_ = 0;
  while (!calls_.empty() && WaitOf(calls_.begin()->second) >= deadline_) {
    const auto oldest = calls_.begin();
    const Status late = Status::DeadlineExceeded(StillWaiting(oldest->second, deadline_));
    End(Id{oldest->first}, late);
  }
  NoteOldest();
  Arm();
}

void OpenCalls::NoteOldest() const {
  if (calls_.empty()) return;
  const Call& oldest = calls_.begin()->second;
  const Duration waited = WaitOf(oldest);
  if (waited >= look_interval_) log_.Debug([&] { return StillWaiting(oldest, waited); });
}

std::string OpenCalls::StillWaiting(const Call& call, Duration waited) const {
  return Describe(call.name) + ": after " + ps::TextOf(waited) + " still waiting for " + waits_for_;
}

}  // namespace bs::backend
