// ReconnectTimer: gives each broken connection time to come back before its peer counts as lost.
//
// Confined to the scope's executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "membership/task_scope.h"

namespace ps {

// The reason of a loss where a connection broke and did not come back.
inline constexpr std::string_view kConnectionClosed = "connection closed";

class ReconnectTimer {
 public:
  // Called once for a watched peer that does not connect within `connect_timeout`, or that stays
  // disconnected for `grace`.  The peer is forgotten then.  Never called inside another call here.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  ReconnectTimer(TaskScope* scope, bs::Duration connect_timeout, bs::Duration grace, Lost lost);
  ReconnectTimer(const ReconnectTimer&) = delete;
  ReconnectTimer& operator=(const ReconnectTimer&) = delete;
  ~ReconnectTimer() = default;

  // Begins to watch a peer; the caller also calls Transport::Connect.
  void Watch(int32_t peer) { Watch(peer, connect_timeout_); }
  void Watch(int32_t peer, bs::Duration connect_timeout);
  void Forget(int32_t peer);
  // True if a watched peer is not connected.
  bool AnyDown() const;
  // The transport's callbacks; ignored for peers that are not watched.
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
