// ZmqLink: the connection to one peer, with the queue of what waits for it.
#pragma once

#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "bytescheduler/status.h"
#include "ps/message.h"
#include "transport/link_listener.h"
#include "transport/send_queue.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"
#include "transport/zmq/zmq_transport.h"

namespace ps {

// A DEALER that connects, and is connected again by libzmq for as long as the link lives.  Messages
// wait here, not in libzmq, so that an urgent one can overtake: libzmq gets at most
// `committed_messages`, and none before the connection is up.
//
// Belongs to `loop`: every method and the destructor run there, and so do the listener's
// callbacks.  The queue is bounded by what the owner sends.
//
// Held by one owner; tasks that the link posts to itself know it weakly.
class ZmqLink : public std::enable_shared_from_this<ZmqLink> {
 public:
  // `number` is unique among the links of a context.
  ZmqLink(bs::LoopThread* loop, const ZmqOptions& options, uint64_t number, LinkListener listener);
  ZmqLink(const ZmqLink&) = delete;
  ZmqLink& operator=(const ZmqLink&) = delete;
  // What still waits here is dropped; what libzmq has gets until the deadline of Drain to leave.
  ~ZmqLink();

  // Connects to `endpoint` as `identity` (empty: anonymous).  REQUIRES: called once, before Send.
  bs::Status Open(const ZmqContext& context, const std::string& endpoint,
                  const std::string& identity);
  void Send(Message message);
  uint64_t waiting_bytes() const { return queue_.waiting_bytes(); }
  // Sends what waits, tells the listener nothing any more, and posts `on_drained` once nothing
  // waits here.  The owner drops the link then, or at `deadline`.
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
  LinkListener listener_;
  std::unique_ptr<ZmqSocket> dealer_;
  std::shared_ptr<ZmqMonitor> monitor_;
  SendQueue queue_;
  bool connected_ = false;
  bool pump_posted_ = false;
  bs::Task on_drained_;  // empty: not draining, or told already
  bs::TimePoint deadline_{};
};

}  // namespace ps
