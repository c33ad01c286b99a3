// SuspicionTimer: one timer for each peer, set again if it fires too early.
#include "membership/stock/suspicion_timer.h"

#include <utility>

#include "wire/control.h"

namespace ps {

SuspicionTimer::SuspicionTimer(TaskScope* scope, bs::Duration patience, Lost lost)
    : scope_(scope), patience_(patience), lost_(std::move(lost)) {}

void SuspicionTimer::Begin(int32_t peer) {
  const auto [it, first] = suspicions_.try_emplace(peer);
  if (!first) return;
  it->second.heard = scope_->Now();
  Arm(peer, &it->second);
}

void SuspicionTimer::OnHeard(int32_t peer) {
  if (suspicions_.empty()) return;
  const auto it = suspicions_.find(peer);
  if (it != suspicions_.end()) it->second.heard = scope_->Now();
}

void SuspicionTimer::Forget(int32_t peer) {
  const auto it = suspicions_.find(peer);
  if (it == suspicions_.end()) return;
  scope_->Cancel(it->second.timer);
  suspicions_.erase(it);
}

void SuspicionTimer::Arm(int32_t peer, Suspicion* suspicion) {
  const bs::Duration left = suspicion->heard + patience_ - scope_->Now();
  suspicion->timer = scope_->After(left, [this, peer] { OnDue(peer); });
}

void SuspicionTimer::OnDue(int32_t peer) {
  const auto it = suspicions_.find(peer);
  if (it->second.heard + patience_ > scope_->Now()) return Arm(peer, &it->second);
  suspicions_.erase(it);
  lost_(peer,
        "after one of its connections was closed, with which messages may be lost, nothing "
        "has come for " +
            TextOf(patience_) + " (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
}

}  // namespace ps
