// The lines by which the two ends of a TCP connection agree on a queue pair (PROTOCOL.md, "RDMA").
//
// Thread-safe; pure functions, but for NewRdmaToken.  Parsing never aborts whatever the text is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/rdma/rdma_packet.h"
#include "transport/rdma/verbs.h"

namespace ps {

using RdmaToken = std::array<std::byte, kRdmaTokenBytes>;

// A token that is not to be guessed.  kResourceExhausted: the system has none.
bs::Result<RdmaToken> NewRdmaToken();

struct RdmaOffer {
  QueuePairAddress address{};
  uint32_t mtu_bytes = 0;
  uint32_t reads = 0;  // the connector: that it answers at a time; the acceptor: that it posts
  // Room that this end has ready for SENDs of the other.
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;
  RdmaToken token{};  // the connector's; the acceptor repeats it

  bool operator==(const RdmaOffer&) const = default;
};

// Bounds of the numbers that a peer may name.
inline constexpr uint32_t kLeastRdmaSlots = 4;
inline constexpr uint32_t kMostRdmaSlots = 4096;
inline constexpr uint32_t kLeastRdmaSlotBytes = 1U << 10U;
inline constexpr uint32_t kMostRdmaSlotBytes = 1U << 20U;
inline constexpr uint32_t kMostRdmaReads = 16;

std::string TextOf(const RdmaOffer& offer);
// kInvalidArgument, with the fault.
bs::Result<RdmaOffer> ParseRdmaOffer(std::string_view text);

}  // namespace ps
