// RdmaOptions: how a node uses RDMA.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/verbs.h"

namespace ps {

// Counts of a node's RDMA, all peers together.  Thread-safe.
struct RdmaCounts {
  std::atomic<uint64_t> sent_bytes = 0;  // data bytes that left by RDMA
  std::atomic<uint64_t> received_bytes = 0;
  std::atomic<uint64_t> reads = 0;          // READs that are complete
  std::atomic<uint64_t> bounced_bytes = 0;  // copied before they were offered to a peer
  std::atomic<uint64_t> moved_bytes = 0;    // copied from where they were read to
  std::atomic<uint64_t> pinned_bytes = 0;   // registered now
  std::atomic<uint64_t> links = 0;          // connections that use RDMA now
  std::atomic<uint64_t> window_bytes = 0;   // READs may have under way now
  // Connections that RDMA has broken, by the number of the result that broke them (ibv_wc_status).
  // kOk: none did; the last number counts all that are above it.
  static constexpr size_t kResults = 32;
  std::array<std::atomic<uint64_t>, kResults> breaks{};
};

struct RdmaOptions {
  std::shared_ptr<Verbs> verbs{};  // null: no RDMA
  // The device, and the port and address of its queue pairs.  The caller has chosen them: the GID
  // of the address that this node gives to other nodes.
  std::string device{};
  RdmaPath path{};
  // Bytes of READs under way from a peer; 0: as the link needs, between 128 KiB and 1 MiB.
  uint64_t window_bytes = 0;
  // A message of at most slot_bytes with its meta data is sent at once into one of `slots`.  The
  // receiver has these ready for each peer.
  uint32_t slot_bytes = 8U << 10U;
  uint32_t slots = 64;
  // Memory for data that lies where it cannot be registered.
  uint64_t bounce_bytes = uint64_t{8} << 20U;
  // The NUMA node of the device, where memory for it lies; -1: anywhere.
  int numa_node = -1;
  // Cores of that node, for the thread that the links are on; empty: any.
  std::vector<int> cores{};
  // Memory of callers that is registered at a time; more is copied.
  uint64_t most_lent_bytes = UINT64_MAX;
  std::shared_ptr<RdmaCounts> counts{};  // null: not counted
};

// A node has room for SENDs of this number of slots under way to each peer, or for more that are
// shorter.
inline constexpr uint32_t kRdmaRingSends = 8;
// Slots of the sending end of a link, for the credits and releases of the other.
inline constexpr uint32_t kRdmaReturnSlots = 16;
inline constexpr uint32_t kRdmaReturnSlotBytes = 1U << 10U;

}  // namespace ps
