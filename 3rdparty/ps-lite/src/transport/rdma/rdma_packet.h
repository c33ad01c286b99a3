// RdmaPacket: the bytes of one SEND (PROTOCOL.md, "RDMA"): a message, the place of a message's
// data, or a word between the two ends of a link.
//
// Pure functions, thread-safe.  Parsing never aborts whatever the bytes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "wire/wire.h"

namespace ps {

// Adverts of a link that are not released.
inline constexpr size_t kMostRdmaAdverts = 256;

struct RdmaHeader {
  enum class Kind : uint8_t {
    kMessage = 1,  // the beginning of a message, or all of it
    kAdvert = 2,   // a message whose data the receiver READs
    kControl = 3,  // adverts that are released, and credits
    kMore = 4,     // the next bytes of the message that the latest kMessage or kAdvert has begun
    kProof = 5,    // the token of the offer
  };
  static constexpr size_t kBytes = 16;

  Kind kind = Kind::kMessage;
  uint8_t frames = 0;       // kMessage, kAdvert: data frames
  uint16_t credits = 0;     // slots that the receiver of this SEND may use again
  uint32_t meta_bytes = 0;  // kMessage, kAdvert
  uint32_t id = 0;          // kAdvert
  uint32_t count = 0;       // kControl: ids that follow
};

// A data frame: its size, and where it lies if it is not empty and travels by READ.
struct RdmaFrame {
  static constexpr size_t kBytes = 24;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
  uint32_t key = 0;
};

// A SEND; a view of its bytes.
struct RdmaPacket {
  RdmaHeader header{};
  std::array<RdmaFrame, kMaxDataFrames> frames{};
  std::span<const std::byte> rest{};  // behind header and frames: meta and data, ids, or a token

  uint32_t IdAt(size_t i) const;  // REQUIRES: kControl; i < header.count
};

// kInvalidArgument, with the fault, for anything else than a packet.
bs::Result<RdmaPacket> ParseRdmaPacket(std::span<const std::byte> bytes);

// Write to the front of `out`, which has room.
void WriteRdmaHeader(const RdmaHeader& header, std::span<std::byte> out);
void WriteRdmaFrame(const RdmaFrame& frame, std::span<std::byte> out);
void WriteRdmaId(uint32_t id, std::span<std::byte> out);
inline constexpr size_t kRdmaIdBytes = 4;
inline constexpr size_t kRdmaTokenBytes = 16;

}  // namespace ps
