// ReconnectTimer: one timer for each connection that is down.
#include "membership/reconnect_timer.h"

#include <algorithm>
#include <utility>

#include "wire/control.h"

namespace ps {

ReconnectTimer::ReconnectTimer(TaskScope* scope, bs::Duration connect_timeout, bs::Duration grace,
                               Lost lost)
    : scope_(scope), connect_timeout_(connect_timeout), grace_(grace), lost_(std::move(lost)) {}

void ReconnectTimer::Watch(int32_t peer, bs::Duration connect_timeout) {
  Forget(peer);
  Arm(peer, connect_timeout, "no connection in " + TextOf(connect_timeout));
}

void ReconnectTimer::Forget(int32_t peer) {
  const auto it = timers_.find(peer);
  if (it == timers_.end()) return;
  if (it->second != 0) scope_->Cancel(it->second);
  timers_.erase(it);
}

bool ReconnectTimer::AnyDown() const {
  return std::any_of(timers_.begin(), timers_.end(),
                     [](const auto& timer) { return timer.second != 0; });
}

void ReconnectTimer::OnConnected(int32_t peer) {
  const auto it = timers_.find(peer);
  if (it == timers_.end()) return;
  if (it->second != 0) scope_->Cancel(it->second);
  it->second = 0;
}

void ReconnectTimer::OnDisconnected(int32_t peer) {
  const auto it = timers_.find(peer);
  // A running timer keeps its time: the connection was not up in between.
  if (it == timers_.end() || it->second != 0) return;
  Arm(peer, grace_, std::string(kConnectionClosed));
}

void ReconnectTimer::Arm(int32_t peer, bs::Duration delay, const std::string& why) {
  timers_[peer] = scope_->After(delay, [this, peer, why] {
    timers_.erase(peer);
    lost_(peer, why);
  });
}

}  // namespace ps
