// TcpTransport: ZMTP over plain sockets, without libzmq's threads and memory in between.
//
// Speaks to libzmq's ROUTER and DEALER, and so to stock ps-lite nodes, without authentication.
#pragma once

#include <chrono>
#include <memory>

#include "base/log.h"
#include "base/loop_thread.h"
#include "ps/transport.h"
#include "transport/rdma/rdma_options.h"

namespace ps {

struct TcpOptions {
  // Bytes that the kernel may hold unsent for a connection (TCP_NOTSENT_LOWAT); 0 leaves it.
  int unsent_bytes = 16 << 10;
  // The time of the link that the kernel may hold for all connections to other hosts together,
  // besides a round trip (see LinkBudget); 0: no bound.
  bs::Duration link_ahead{};
  // Messages taken out of the queue ahead of the network, for each peer; 0: as few as fill a call.
  int ahead_messages = 0;
  // Small messages that wait for the same peer are fused up to this many bytes of payload; 0: each
  // travels alone.  Fusion stays within the bytes that may be ahead of the network (16 KiB).
  uint64_t fusion_bytes = 16U << 10U;
  std::shared_ptr<SentCounts> sent{};  // null: not counted
  // The bound of SendQueue::waiting_bytes for a peer.
  uint64_t most_waiting_bytes = uint64_t{8} << 30U;
  // Bytes of memory shared with each peer of this host, for long frames sent to it.  0: none, and
  // none is taken from peers.
  uint64_t shared_bytes = 0;
  // RDMA to the peers that have it too.  Memory shared with a peer of this host goes before.
  RdmaOptions rdma{};
  // A host that acknowledges nothing for so long, not even the kernel's probes, has vanished.  Its
  // connection counts as broken and is not retried at once.  0: never; the least is 5 s.
  bs::Duration host_timeout{};
  // A peer that does not introduce itself for so long is hung up on and named in the log.  So is a
  // peer outside the job that leaves a message unfinished for so long, or sends more than
  // TcpInbound::kMostMessages in that time.
  bs::Duration patience = std::chrono::seconds(30);
  // The bound of connections from a host with peers outside the job; beyond it the oldest
  // connection is closed.  0: a quarter of the descriptors that this process may have, at most
  // 4096.
  int most_strangers = 0;
};

// `loop` carries the sockets ("bs-io") and must outlive the transport.  The destructor waits for
// the loop and so must not run on it.  Bind blocks the loop while a host name is looked up.
// Received frames may outlive the transport.
std::unique_ptr<Transport> MakeTcpTransport(bs::LoopThread* loop, const TcpOptions& options,
                                            const bs::Logger& log);

}  // namespace ps
