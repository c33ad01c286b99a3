// ZmqConnection: the outgoing connection to a peer, with the queue of messages that wait for it.
#pragma once

#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "base/status.h"
#include "ps/message.h"
#include "transport/connection_listener.h"
#include "transport/send_queue.h"
#include "transport/zmq/connect_probe.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"
#include "transport/zmq/zmq_transport.h"

namespace ps {

// A DEALER that connects, and that libzmq reconnects until it is destroyed.
// Messages wait here, not in libzmq, so that an urgent message can overtake: libzmq gets at most
// `committed_messages`, and none before the connection is up.
//
// Belongs to `loop`: every method, the destructor and the listener's callbacks run there.  The
// owner bounds the queue.
//
// Held by a single owner; tasks that the connection posts hold it weakly.
class ZmqConnection : public std::enable_shared_from_this<ZmqConnection> {
 public:
  // `number` is unique among the connections of a context.
  ZmqConnection(bs::LoopThread* loop, const ZmqOptions& options, uint64_t number,
                ConnectionListener listener);
  ZmqConnection(const ZmqConnection&) = delete;
  ZmqConnection& operator=(const ZmqConnection&) = delete;
  // Drops the messages that still wait here.  Messages that libzmq has get until Drain's deadline.
  ~ZmqConnection();

  // Connects to `endpoint` as `identity` (empty: anonymous).  REQUIRES: called once, before Send.
  bs::Status Open(const ZmqContext& context, const std::string& endpoint,
                  const std::string& identity);
  void Send(Message message);
  uint64_t waiting_bytes() const { return queue_.waiting_bytes(); }
  // Sends the messages that wait, calls the listener no more, and posts `on_drained` once none
  // waits here.  The owner drops the connection then, or at `deadline`.
  void Drain(bs::TimePoint deadline, bs::Task on_drained);

 private:
  bs::Status OpenMonitor(const ZmqContext& context);
  void OnMonitorEvent(int event, int value);
  // The listener learns why there has been no connection yet.
  void OnAttemptEvent(int event);
  // Hands messages to libzmq, as many as it takes now.
  void Pump();
  void PumpLater();
  // False, and nothing has changed, if libzmq takes nothing now.
  bool Hand(Message* message);

  bs::LoopThread* const loop_;
  const ZmqOptions options_;
  const uint64_t number_;
  ConnectionListener listener_;
  std::unique_ptr<ZmqSocket> dealer_;
  std::shared_ptr<ZmqMonitor> monitor_;
  SendQueue queue_;
  std::unique_ptr<ConnectProbe> probe_;  // until a connection has come up
  bool attempt_told_ = false;
  bool connected_ = false;
  bool pump_posted_ = false;
  bs::Task on_drained_;  // empty: not draining, or already posted
  bs::TimePoint deadline_{};
};

}  // namespace ps
