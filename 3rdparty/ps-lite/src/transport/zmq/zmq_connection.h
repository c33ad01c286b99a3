// ZmqConnection: the connection to one peer, with the queue of what waits for it.
#pragma once

#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "bytescheduler/status.h"
#include "ps/message.h"
#include "transport/connection_listener.h"
#include "transport/send_queue.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"
#include "transport/zmq/zmq_transport.h"

namespace ps {

// A DEALER that connects, and is connected again by libzmq for as long as the connection lives.
// Messages wait here, not in libzmq, so that an urgent one can overtake: libzmq gets at most
// `committed_messages`, and none before the connection is up.
//
// Belongs to `loop`: every method and the destructor run there, and so do the listener's
// callbacks.  The queue is bounded by what the owner sends.
//
// Held by one owner; tasks that the connection posts to itself know it weakly.
class ZmqConnection : public std::enable_shared_from_this<ZmqConnection> {
 public:
  // `number` is unique among the connections of a context.
  ZmqConnection(bs::LoopThread* loop, const ZmqOptions& options, uint64_t number,
                ConnectionListener listener);
  ZmqConnection(const ZmqConnection&) = delete;
  ZmqConnection& operator=(const ZmqConnection&) = delete;
  // What still waits here is dropped; what libzmq has gets until the deadline of Drain to leave.
  ~ZmqConnection();

  // Connects to `endpoint` as `identity` (empty: anonymous).  REQUIRES: called once, before Send.
  bs::Status Open(const ZmqContext& context, const std::string& endpoint,
                  const std::string& identity);
  void Send(Message message);
  uint64_t waiting_bytes() const { return queue_.waiting_bytes(); }
  // Sends what waits, tells the listener nothing any more, and posts `on_drained` once nothing
  // waits here.  The owner drops the connection then, or at `deadline`.
  void Drain(bs::TimePoint deadline, bs::Task on_drained);

 private:
  bs::Status OpenMonitor(const ZmqContext& context);
  void OnMonitorEvent(int event, int value);
  // Hands to libzmq what it takes now.
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
  bool connected_ = false;
  bool pump_posted_ = false;
  bs::Task on_drained_;  // empty: not draining, or told already
  bs::TimePoint deadline_{};
};

}  // namespace ps
