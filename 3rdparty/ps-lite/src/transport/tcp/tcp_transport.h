// TcpTransport: ZMTP over sockets of our own, without libzmq's threads and memory in between.
//
// Talks to libzmq's ROUTER and DEALER, and so to stock ps-lite nodes, without authentication.
#pragma once

#include <chrono>
#include <memory>

#include "base/log.h"
#include "base/loop_thread.h"
#include "ps/transport.h"

namespace ps {

struct TcpOptions {
  // Bytes that the kernel may hold unsent for one connection (TCP_NOTSENT_LOWAT); 0 leaves it.
  int unsent_bytes = 16 << 10;
  // Messages taken out of the queue ahead of the network, for each peer; 0: as few as fill a call.
  int ahead_messages = 0;
  // Small messages that wait for the same peer are fused, up to so many bytes of payload; 0: each
  // travels alone.  No more than may be ahead of the network (16 KiB) ever is.
  uint64_t fusion_bytes = 16U << 10U;
  std::shared_ptr<SentCounts> sent{};  // null: nobody counts
  // What may wait here for one peer (SendQueue::waiting_bytes).
  uint64_t most_waiting_bytes = uint64_t{8} << 30U;
  // Memory that is shared with each peer of this host, for the long frames that are sent to it; 0:
  // none, and none is taken from peers.
  uint64_t shared_bytes = 0;
  // The host of a peer that acknowledges nothing for so long, not even the kernel's probes, has
  // vanished: the connection counts as broken, and is not tried again at once.  0: never;
  // less than 5 s is as 5 s.
  bs::Duration host_timeout{};
  // Who does not introduce himself for so long is hung up on and named, and so is who is not in the
  // job and stays in the middle of a message, or sends more than kMostMessages in it.
  bs::Duration patience = std::chrono::seconds(30);
  // Connections of one host by which nobody speaks who is in the job; of more the oldest is hung up
  // on.  0: a quarter of the descriptors that this process may have, 4096 at most.
  int most_strangers = 0;
};

// `loop` carries the sockets ("bs-io") and must outlive the transport, whose destructor waits for
// it and so must not run on it.  Bind blocks the loop while a host name is looked up.  Received
// frames may outlive the transport.
std::unique_ptr<Transport> MakeTcpTransport(bs::LoopThread* loop, const TcpOptions& options,
                                            const bs::Logger& log);

}  // namespace ps
