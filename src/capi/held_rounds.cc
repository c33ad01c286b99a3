// Push-pulls that are held back: see held_rounds.h.
#include "capi/held_rounds.h"

#include <utility>

#include "bytescheduler/status.h"

namespace bs::api {
namespace {

void Fail(const bs_push_pull& request, int code, const char* why) {
  if (request.pushed != nullptr) request.pushed(request.context, code, why);
  if (request.pulled != nullptr) request.pulled(request.context, code, why);
}

}  // namespace

bs_held* HeldRounds::Hold(bs_worker* worker, const bs_push_pull& request) {
  const MutexLock lock(&mutex_);
  auto held =
      std::make_unique<bs_held>(bs_held{shared_from_this(), worker, ++count_, Clock::now()});
  waiting_.emplace(held->number, request);
  return held.release();
}

void HeldRounds::Start(bs_held* held) {
  const std::unique_ptr<bs_held> owned(held);
  owned->owner->StartNow(*owned);
}

void HeldRounds::StartNow(const bs_held& held) {
  bs_push_pull request{};
  bs_error error{};
  {
    // Under the lock, as Close must not free the worker meanwhile.
    const MutexLock lock(&mutex_);
    const auto found = waiting_.find(held.number);
    if (found == waiting_.end()) return;
    request = found->second;
    waiting_.erase(found);
    const auto waited = Clock::now() - held.since;
    request.waited_ns += std::chrono::nanoseconds(waited).count();
    if (bs_worker_push_pull(held.worker, &request, &error) == 0) return;
  }
  Fail(request, error.code, error.message);
}

void HeldRounds::Close() {
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
