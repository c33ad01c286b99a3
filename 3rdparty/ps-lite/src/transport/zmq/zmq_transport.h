// ZmqTransport: a ROUTER to receive, a DEALER for each peer to send, as every ps-lite node has.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/loop_thread.h"
#include "ps/transport.h"
#include "transport/zmq/zmq_curve.h"
#include "wire/wire.h"

namespace ps {

struct ZmqOptions {
  bool ipc = false;   // DMLC_LOCAL: ipc:///tmp/<port> instead of tcp
  bool ipv6 = false;  // names stand for IPv6 addresses; numeric addresses may be of either kind
  // Bytes that the kernel may hold unsent for a connection (TCP_NOTSENT_LOWAT); 0 leaves it.
  int unsent_bytes = 16 << 10;
  // Messages handed to libzmq ahead of the network, for each peer.
  int committed_messages = 2;
  std::shared_ptr<SentCounts> sent{};  // null: not counted
  // The bound of SendQueue::waiting_bytes for a peer.
  uint64_t most_waiting_bytes = uint64_t{8} << 30U;
  // A longer frame ends its connection.  libzmq takes memory for a whole frame at once, from any
  // sender.
  uint64_t max_frame_bytes = kMaxFrameBytes;
  // A peer that has not introduced itself in so long is hung up on.
  bs::Duration patience = std::chrono::seconds(30);
  // All traffic is encrypted; a peer with other keys, or none, is refused and logged.
  std::optional<CurveKeys> curve{};
};

// `loop` carries the sockets ("bs-io") and must outlive the transport.  The destructor waits for
// the loop and so must not run on it.  Bind blocks the loop while a host name is looked up.
// Received frames are libzmq's own memory and may outlive the transport.
std::unique_ptr<Transport> MakeZmqTransport(bs::LoopThread* loop, const ZmqOptions& options,
                                            const bs::Logger& log);

}  // namespace ps
