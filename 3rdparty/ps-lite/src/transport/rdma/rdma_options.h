// RdmaOptions: how a node uses RDMA.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/rdma/verbs.h"

namespace ps {

// Counts of a node's RDMA, all peers together.  Thread-safe.
struct RdmaCounts {
  std::atomic<uint64_t> sent_bytes = 0;  // data bytes that left by RDMA
  std::atomic<uint64_t> received_bytes = 0;
  std::atomic<uint64_t> reads = 0;          // READs that are complete
  std::atomic<uint64_t> bounced_bytes = 0;  // copied before they were offered to a peer
  std::atomic<uint64_t> pinned_bytes = 0;   // registered now
  std::atomic<uint64_t> links = 0;          // connections that use RDMA now
  std::atomic<uint64_t> breaks = 0;         // connections that RDMA has broken
};

struct RdmaOptions {
  std::shared_ptr<Verbs> verbs{};  // null: no RDMA
  // The device, and the port and address of its queue pairs.  The caller has chosen them: the GID
  // of the address that this node gives to others.
  std::string device{};
  RdmaPath path{};
  // Bytes of READs under way from one peer; 0: as the link needs, between 128 KiB and 1 MiB.
  uint64_t window_bytes = 0;
  // A message of at most slot_bytes with its meta data is sent at once into one of `slots`, which
  // the receiver has ready for each peer.
  uint32_t slot_bytes = 8U << 10U;
  uint32_t slots = 64;
  // Memory for data that lies where it cannot be registered.
  uint64_t bounce_bytes = uint64_t{8} << 20U;
  std::shared_ptr<RdmaCounts> counts{};  // null: not counted
};

}  // namespace ps
