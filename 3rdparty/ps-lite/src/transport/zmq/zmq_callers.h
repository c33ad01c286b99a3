// ZmqCallers: who has opened the connections of a libzmq listener, as far as libzmq tells.
//
// It tells what happens to connections, each by its descriptor, but of a handshake that fails not
// whose: the end of that connection comes next, as its thread does both in one go (a context has
// one).  A descriptor may be closed, or another's, by the time that we look: then the address is
// missing or wrong.
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

  // libzmq gives a handshake `patience`.  `executor` gives the time and must outlive this.
  ZmqCallers(bs::Executor* executor, const bs::Logger& log, bs::Duration patience)
      : executor_(executor), unknown_peers_(executor, log), patience_(patience) {}

  // Of ZmqMonitor, from kEvents: names who hung in the handshake or broke it.
  void OnEvent(int event, int value);
  // What was in a message of a stranger that was dropped.
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
  std::map<int, Caller> callers_;  // by descriptor, as many as are open
  int failed_ = 0;                 // the event of a handshake whose connection ends next
};

}  // namespace ps
