// ZmqCallers: the addresses of peers that connect to a libzmq listener, as far as libzmq tells.
//
// libzmq reports events of connections by descriptor, but a failed handshake without a descriptor.
// The end of that connection is the next event, since libzmq's thread does both at once.  A
// descriptor may be closed or reused before we look: then the address is missing or wrong.
//
// Confined to one executor.
#pragma once

#include <map>
#include <string>

#include "base/executor.h"
#include "base/log.h"
#include "transport/unknown_peer_log.h"
#include "transport/zmq/zmq_socket.h"

namespace ps {

class ZmqCallers {
 public:
  static constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

  // `patience`: libzmq's limit for a handshake.  `executor` gives the time and must outlive this.
  ZmqCallers(bs::Executor* executor, const bs::Logger& log, bs::Duration patience)
      : executor_(executor), unknown_peers_(executor, log), patience_(patience) {}

  // Takes an event of ZmqMonitor, one of kEvents.  Warns of a peer that stalls in the handshake or
  // breaks it.
  void OnEvent(int event, int value);
  // Warns of a dropped message from a peer outside the job; `part` is any of its parts.
  void TellDropped(const ZmqMessage& part, const std::string& why);

 private:
  struct Caller {
    std::string address;
    bs::TimePoint since{};
  };

  void OnEnd(int fd);

  bs::Executor* const executor_;
  UnknownPeerLog unknown_peers_;
  const bs::Duration patience_;
  std::map<int, Caller> callers_;  // by descriptor; bounded by the open connections
  int failed_ = 0;                 // the event of a failed handshake; its connection ends next
};

}  // namespace ps
