// InboundWatch: one timer for each ended connection.
#include "membership/stock/inbound_watch.h"

#include <utility>

#include "wire/control.h"

namespace ps {

InboundWatch::InboundWatch(TaskScope* scope, bs::Duration grace, Lost lost)
    : scope_(scope), grace_(grace), lost_(std::move(lost)) {}

void InboundWatch::OnOpened(int32_t peer) {
  Inbound& inbound = inbound_[peer];
  if (inbound.timer == 0 || inbound.torn) return;
  scope_->Cancel(std::exchange(inbound.timer, 0));
}

void InboundWatch::OnEnded(int32_t peer, bool watched, bool torn) {
  if (!watched) return Forget(peer);
  const auto it = inbound_.find(peer);
  if (it == inbound_.end() || it->second.timer != 0) return;
  it->second.torn = torn;
  const std::string why = torn ? "connection closed in the middle of a message, which is lost"
                               : "connection closed, and no other opened in " + TextOf(grace_);
  it->second.timer = scope_->After(grace_, [this, peer, why] {
    inbound_.erase(peer);
    lost_(peer, why);
  });
}

void InboundWatch::Forget(int32_t peer) {
  const auto it = inbound_.find(peer);
  if (it == inbound_.end()) return;
  if (it->second.timer != 0) scope_->Cancel(it->second.timer);
  inbound_.erase(it);
}

}  // namespace ps
