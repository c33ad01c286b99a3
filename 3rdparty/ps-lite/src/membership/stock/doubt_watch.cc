// DoubtWatch: one timer for each peer, set anew where it fires too early.
#include "membership/stock/doubt_watch.h"

#include <utility>

#include "wire/control.h"

namespace ps {

DoubtWatch::DoubtWatch(TaskScope* scope, bs::Duration patience, Lost lost)
    : scope_(scope), patience_(patience), lost_(std::move(lost)) {}

void DoubtWatch::Begin(int32_t peer) {
  const auto [it, first] = doubts_.try_emplace(peer);
  if (!first) return;
  it->second.heard = scope_->Now();
  Arm(peer, &it->second);
}

void DoubtWatch::OnHeard(int32_t peer) {
  if (doubts_.empty()) return;
  const auto it = doubts_.find(peer);
  if (it != doubts_.end()) it->second.heard = scope_->Now();
}

void DoubtWatch::Forget(int32_t peer) {
  const auto it = doubts_.find(peer);
  if (it == doubts_.end()) return;
  scope_->Cancel(it->second.timer);
  doubts_.erase(it);
}

void DoubtWatch::Arm(int32_t peer, Doubt* doubt) {
  const bs::Duration left = doubt->heard + patience_ - scope_->Now();
  doubt->timer = scope_->After(left, [this, peer] { OnDue(peer); });
}

void DoubtWatch::OnDue(int32_t peer) {
  const auto it = doubts_.find(peer);
  if (it->second.heard + patience_ > scope_->Now()) return Arm(peer, &it->second);
  doubts_.erase(it);
  lost_(peer,
        "after one of its connections was closed, with which messages may be lost, nothing "
        "has come for " +
            TextOf(patience_) + " (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
}

}  // namespace ps
