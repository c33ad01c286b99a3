// Push-pulls that start later: see deferred_rounds.h.
#include "capi/deferred_rounds.h"

#include <chrono>
#include <utility>

#include "base/loop_thread.h"
#include "bytescheduler/status.h"

namespace bs::api {
namespace {

void Fail(const bs_push_pull& request, int code, const char* why) {
  if (request.pushed != nullptr) request.pushed(request.context, code, why);
  if (request.pulled != nullptr) request.pulled(request.context, code, why);
}

}  // namespace

bs_deferred* DeferredRounds::Defer(bs_worker* worker, const bs_push_pull& request) {
  const MutexLock lock(&mutex_);
  const TimePoint now = LoopThread::SteadyTime();
  auto deferred =
      std::make_unique<bs_deferred>(bs_deferred{shared_from_this(), worker, ++count_, now});
  waiting_.emplace(deferred->number, request);
  return deferred.release();
}

void DeferredRounds::Start(bs_deferred* deferred) {
  const std::unique_ptr<bs_deferred> owned(deferred);
  owned->owner->StartNow(*owned);
}

void DeferredRounds::StartNow(const bs_deferred& deferred) {
  bs_push_pull request{};
  bs_error error{};
  {
    // Under the lock, as Close must not free the worker meanwhile.
    const MutexLock lock(&mutex_);
    const auto found = waiting_.find(deferred.number);
    if (found == waiting_.end()) return;
    request = found->second;
    waiting_.erase(found);
    const auto waited = LoopThread::SteadyTime() - deferred.since;
    request.waited_ns += std::chrono::nanoseconds(waited).count();
    if (bs_worker_push_pull(deferred.worker, &request, &error) == 0) return;
  }
  Fail(request, error.code, error.message);
}

void DeferredRounds::Close() {
  std::map<uint64_t, bs_push_pull> left;
  {
    const MutexLock lock(&mutex_);
    std::swap(left, waiting_);
  }
  for (const auto& [number, request] : left) {
    Fail(request, static_cast<int>(StatusCode::kCancelled),
         "the worker was closed before the tensor was ready");
  }
}

}  // namespace bs::api
