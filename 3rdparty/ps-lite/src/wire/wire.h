// The wire format of PBMeta: the only place that encodes and parses it.
//
// Pure functions, thread-safe.  ParseMeta never aborts whatever the bytes are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ps/message.h"

namespace ps {

// Limits on the input that a peer may make us keep; longer input is refused.
inline constexpr size_t kMaxMetaBytes = 16u << 20;
inline constexpr size_t kMaxNodes = 1u << 16;
inline constexpr size_t kMaxDataFrames = 16;  // of one message; held by the transports
// A longer frame is an attack or a mistake; held by the transports, as are the limits below.
inline constexpr uint64_t kMaxFrameBytes = uint64_t{4} << 30;
// Bounds the data frames of one message together.
inline constexpr uint64_t kMaxMessageBytes = kMaxFrameBytes + kMaxFrameBytes / 4;
// Bounds the meta frame, and the data frames together, of a sender that is not in the job.
inline constexpr uint64_t kMaxStrangerBytes = 64u << 10;
// Bounds the memory for unfinished messages of all such senders together.
inline constexpr uint64_t kMaxStrangersBytes = 64u << 20;

// The scheduler node's connections to nodes that get no place; above the temporary ids.  Unknown
// peers may name hosts that take long to look up; the nodes of the job must not wait for that.
inline constexpr int32_t kFirstRefusedId = 1 << 29;

// Fields in ascending order, the same bytes as a stock node writes.
// REQUIRES: the body of the extension is whole protobuf fields.
std::string EncodeMeta(const Meta& meta);
// kInvalidArgument, with the fault, for anything that is no PBMeta.  Unknown fields are skipped;
// missing fields take the protocol's defaults (PROTOCOL.md).
bs::Result<Meta> ParseMeta(std::span<const std::byte> bytes);

// "ps9" for 9, empty for kEmpty; and back: kEmpty for a text that is no identity.
std::string IdentityOf(int32_t id);
int32_t IdOfIdentity(std::string_view identity);

}  // namespace ps
