// Push-pulls that start later: see deferred_rounds.h.
#include "capi/deferred_rounds.h"

#include <chrono>
#include <utility>

#include "base/loop_thread.h"
#include "base/status.h"

namespace bs::capi {
namespace {

void Fail(const bs_operation& operation, int code, const char* why) {
  if (operation.pushed != nullptr) operation.pushed(operation.context, code, why);
  operation.done(operation.context, code, why);
}

}  // namespace

bs_deferred* DeferredRounds::Defer(bs_worker* worker, const bs_operation& operation) {
  const MutexLock lock(&mutex_);
  const TimePoint now = LoopThread::SteadyTime();
  auto deferred =
      std::make_unique<bs_deferred>(bs_deferred{shared_from_this(), worker, ++count_, now});
  Waiting& waiting = waiting_[deferred->number];
  waiting.operation = operation;
  waiting.operation.deferred = nullptr;
  if (operation.rates != nullptr) waiting.rates = *operation.rates;
  return deferred.release();
}

void DeferredRounds::Start(bs_deferred* deferred) {
  const std::unique_ptr<bs_deferred> owned(deferred);
  owned->owner->StartNow(*owned);
}

void DeferredRounds::StartNow(const bs_deferred& deferred) {
  bs_operation operation{};
  bs_error error{};
  {
    // Under the lock, as Close must not free the worker meanwhile.
    const MutexLock lock(&mutex_);
    const auto found = waiting_.find(deferred.number);
    if (found == waiting_.end()) return;
    const Waiting waiting = found->second;
    waiting_.erase(found);
    operation = waiting.operation;
    if (operation.rates != nullptr) operation.rates = &waiting.rates;
    const auto waited = LoopThread::SteadyTime() - deferred.since;
    operation.waited_ns += std::chrono::nanoseconds(waited).count();
    if (bs_worker_start_operation(deferred.worker, &operation, &error) == 0) return;
    operation.rates = nullptr;
  }
  Fail(operation, error.code, error.message);
}

void DeferredRounds::Close() {
  std::map<uint64_t, Waiting> left;
  {
    const MutexLock lock(&mutex_);
    std::swap(left, waiting_);
  }
  for (const auto& [number, waiting] : left) {
    Fail(waiting.operation, static_cast<int>(StatusCode::kCancelled),
         "the worker was closed before the tensor was ready");
  }
}

}  // namespace bs::capi
