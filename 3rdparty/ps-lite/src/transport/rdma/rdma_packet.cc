// Writes and reads packets, little-endian.
#include "transport/rdma/rdma_packet.h"

#include <string>

#include "base/check.h"

namespace ps {
namespace {

template <typename T>
void Put(T value, std::span<std::byte> out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8U * i));
  }
}

template <typename T>
T Get(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8U * i);
  return static_cast<T>(value);
}

bs::Status WrongPacket(const std::string& what) {
  return bs::Status::InvalidArgument("no RDMA packet of ours: " + what);
}

bs::Status CheckRest(const RdmaPacket& packet) {
  const RdmaHeader& header = packet.header;
  const bool control = header.kind == RdmaHeader::Kind::kControl;
  if (control && packet.rest.size() != uint64_t{header.count} * kRdmaIdBytes) {
    return WrongPacket("a list of ids that is not whole");
  }
  if (header.kind == RdmaHeader::Kind::kProof && packet.rest.size() != kRdmaTokenBytes) {
    return WrongPacket("a token of another size");
  }
  if (header.kind == RdmaHeader::Kind::kMore && packet.rest.empty())
    return WrongPacket("more of nothing");
  return bs::Status::Ok();
}

}  // namespace

uint32_t RdmaPacket::IdAt(size_t i) const {
  BS_CHECK(i < header.count);
  return Get<uint32_t>(rest.subspan(i * kRdmaIdBytes));
}

bs::Result<RdmaPacket> ParseRdmaPacket(std::span<const std::byte> bytes) {
  if (bytes.size() < RdmaHeader::kBytes) return WrongPacket("a header is cut short");
  const auto kind = Get<uint8_t>(bytes);
  if (kind < static_cast<uint8_t>(RdmaHeader::Kind::kMessage) ||
      kind > static_cast<uint8_t>(RdmaHeader::Kind::kProof)) {
    return WrongPacket("kind " + std::to_string(kind));
  }
  RdmaPacket packet;
  RdmaHeader& header = packet.header;
  header = {.kind = static_cast<RdmaHeader::Kind>(kind),
            .frames = Get<uint8_t>(bytes.subspan(1)),
            .credits = Get<uint16_t>(bytes.subspan(2)),
            .meta_bytes = Get<uint32_t>(bytes.subspan(4)),
            .id = Get<uint32_t>(bytes.subspan(8)),
            .count = Get<uint32_t>(bytes.subspan(12))};
  packet.rest = bytes.subspan(RdmaHeader::kBytes);
  const bool begins =
      header.kind == RdmaHeader::Kind::kMessage || header.kind == RdmaHeader::Kind::kAdvert;
  if (!begins && header.frames > 0) return WrongPacket("frames of no message");
  if (header.frames > kMaxDataFrames || packet.rest.size() < header.frames * RdmaFrame::kBytes) {
    return WrongPacket(std::to_string(header.frames) + " frames");
  }
  for (size_t i = 0; i < header.frames; ++i) {
    RdmaFrame& frame = packet.frames.at(i);
    frame = {.size_bytes = Get<uint64_t>(packet.rest),
             .address = Get<uint64_t>(packet.rest.subspan(8)),
             .key = Get<uint32_t>(packet.rest.subspan(16))};
    if (frame.size_bytes > kMaxFrameBytes) {
      return WrongPacket("a frame of " + std::to_string(frame.size_bytes) + " bytes");
    }
    if (frame.address + frame.size_bytes < frame.address)
      return WrongPacket("a frame past all memory");
    packet.rest = packet.rest.subspan(RdmaFrame::kBytes);
  }
  bs::Status wrong = CheckRest(packet);
  if (!wrong.ok()) return wrong;
  return packet;
}

void WriteRdmaHeader(const RdmaHeader& header, std::span<std::byte> out) {
  Put(static_cast<uint8_t>(header.kind), out);
  Put(header.frames, out.subspan(1));
  Put(header.credits, out.subspan(2));
  Put(header.meta_bytes, out.subspan(4));
  Put(header.id, out.subspan(8));
  Put(header.count, out.subspan(12));
}

void WriteRdmaFrame(const RdmaFrame& frame, std::span<std::byte> out) {
  Put(frame.size_bytes, out);
  Put(frame.address, out.subspan(8));
  Put(uint64_t{frame.key}, out.subspan(16));
}

void WriteRdmaId(uint32_t id, std::span<std::byte> out) { Put(id, out); }

}  // namespace ps
