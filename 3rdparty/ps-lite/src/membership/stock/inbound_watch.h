// InboundWatch: which peers do not send any more, or have lost something that they had to send, by
// the connections that they open to us.
//
// For peers that send each message once: what others lose they send again, and they say themselves
// whom they cannot reach.
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
  // `lost` is called once for a peer, outside of all calls here, and it is forgotten: `grace` after
  // its connection ended if no other was opened, and in any case if that was in the middle of a
  // message.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  InboundWatch(TaskScope* scope, bs::Duration grace, Lost lost);
  InboundWatch(const InboundWatch&) = delete;
  InboundWatch& operator=(const InboundWatch&) = delete;
  ~InboundWatch() = default;

  // What the transport says, of whomever: the number of open connections bounds what is kept.
  void OnOpened(int32_t peer);
  // `watched`: whether it matters of this peer.  `torn`: a message was lost.
  void OnEnded(int32_t peer, bool watched, bool torn);
  // Another process has the peer's id from now on, or none; the end of what is open now does not
  // matter.
  void Forget(int32_t peer);

 private:
  struct Inbound {
    bs::TimerId timer = 0;  // 0: nothing is amiss
    bool torn = false;
  };

  TaskScope* const scope_;
  const bs::Duration grace_;
  const Lost lost_;
  std::map<int32_t, Inbound> inbound_;
};

}  // namespace ps
