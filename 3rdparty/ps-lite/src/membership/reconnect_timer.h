// ReconnectTimer: tells a broken connection that came back from a lost peer.
//
// Confined to the scope's executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "membership/task_scope.h"

namespace ps {

class ReconnectTimer {
 public:
  // `lost` is called once for a watched peer, outside of all calls here, and it is forgotten: if it
  // does not connect within `connect_timeout`, or stays disconnected for `grace`.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  ReconnectTimer(TaskScope* scope, bs::Duration connect_timeout, bs::Duration grace, Lost lost);
  ReconnectTimer(const ReconnectTimer&) = delete;
  ReconnectTimer& operator=(const ReconnectTimer&) = delete;
  ~ReconnectTimer() = default;

  // From now on; call it with Transport::Connect.
  void Watch(int32_t peer) { Watch(peer, connect_timeout_); }
  void Watch(int32_t peer, bs::Duration connect_timeout);
  void Forget(int32_t peer);
  // Whether a watched peer is not connected.
  bool AnyDown() const;
  // What the transport says; about peers that are not watched it does not matter.
  void OnConnected(int32_t peer);
  void OnDisconnected(int32_t peer);

 private:
  void Arm(int32_t peer, bs::Duration delay, const std::string& why);

  TaskScope* const scope_;
  const bs::Duration connect_timeout_;
  const bs::Duration grace_;
  const Lost lost_;
  std::map<int32_t, bs::TimerId> timers_;  // 0: connected
};

}  // namespace ps
