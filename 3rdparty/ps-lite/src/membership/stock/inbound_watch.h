// InboundWatch: finds peers that stopped sending, or lost a message on its way, by the connections
// that they open to us.
//
// For peers that send each message once.  Other peers repeat lost messages, and report themselves
// which nodes they cannot reach.
//
// Confined to the scope's executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "membership/task_scope.h"

namespace ps {

class InboundWatch {
 public:
  // Called once for a peer, `grace` after its connection ended, if it has opened no other.  Called
  // in any case if the connection ended in the middle of a message.  The peer is forgotten then.
  // Never called inside another call here.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  InboundWatch(TaskScope* scope, bs::Duration grace, Lost lost);
  InboundWatch(const InboundWatch&) = delete;
  InboundWatch& operator=(const InboundWatch&) = delete;
  ~InboundWatch() = default;

  // The transport's callbacks, for any peer; memory is bounded by the open connections.
  void OnOpened(int32_t peer);
  // `watched`: the end of this peer's connection matters.  `torn`: a message was lost.
  void OnEnded(int32_t peer, bool watched, bool torn);
  // From now on another process has the peer's id, or none has; the end of the present connection
  // does not matter.
  void Forget(int32_t peer);

 private:
  struct Inbound {
    bs::TimerId timer = 0;  // 0: the connection is open
    bool torn = false;
  };

  TaskScope* const scope_;
  const bs::Duration grace_;
  const Lost lost_;
  std::map<int32_t, Inbound> inbound_;
};

}  // namespace ps
