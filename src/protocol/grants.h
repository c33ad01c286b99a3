// Readiness and Grants: how the ranks of a job agree on an order of collective operations.
//
// Each rank tells the leader (server/grants/leader.h) which tensors are ready.  The leader answers
// with operations, which all ranks execute in the order of their numbers.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs::protocol {

// A tensor that is ready on a rank.
struct ReadyTensor {
  static constexpr size_t kMostCodedBytes = 200;

  Key key = 0;
  Round round = 0;
  uint64_t size_bytes = 0;
  DType dtype = DType::kFloat32;
  Priority priority = 0;      // that of rank 0 counts
  std::string next_layout{};  // of rank 0 (next_layout.h); every rank gets it with the first bytes
  // 0: the tensor is to be summed.  Else its partition `part` - 1 is summed, and is to be given to
  // the ranks that do not own it; size_bytes is the partition's.
  uint32_t part = 0;
  // Not empty: on this rank the tensor is coded so, for people, and goes by servers.  It is not
  // ready, and must not be ready on another rank in this round.
  std::string coded{};

  bool operator==(const ReadyTensor&) const = default;
};

// How the leader makes operations of tensors.
struct Division {
  uint64_t partition_bytes = uint64_t{8} << 20U;  // at least kAlignBytes
  uint64_t credit_bytes = uint64_t{16} << 20U;    // granted and not ended; not 0
  bool priority_order = true;                     // false: first ready, first granted

  bool operator==(const Division&) const = default;
};

struct Readiness {
  std::vector<ReadyTensor> tensors{};
  uint64_t received = 0;  // number of the first operation that the rank lacks
  uint64_t finished = 0;  // number of the first operation that has not ended on the rank
  uint64_t joined = 0;    // operations that the rank's library has begun, as far as is known
  Status failure{};       // the rank cannot go on
  // The failure is that operation `finished` does not end.
  bool late = false;
  // From the settings of worker 0, until it has a response.
  std::optional<Division> division{};
};

// Bytes of a tensor in an operation.
struct GrantedPiece {
  Key key = 0;
  Round round = 0;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  std::string next_layout{};  // with offset 0
  uint32_t part = 0;          // as in ReadyTensor; offset_bytes counts from its begin

  bool operator==(const GrantedPiece&) const = default;
};

// A collective operation: its pieces, in this order, are summed as one array.
using GrantedOperation = std::vector<GrantedPiece>;

struct Grants {
  uint64_t first = 0;  // number of the first operation
  std::vector<GrantedOperation> operations{};
};

// Convert to bytes for the wire (protobuf fields), and back.  kInvalidArgument if the bytes make no
// sense.
std::string Encode(const Readiness& readiness);
Result<Readiness> DecodeReadiness(std::string_view bytes);
std::string Encode(const GrantedOperation& operation);
// `operations` are encoded.
std::string EncodeGrants(uint64_t first, std::span<const std::string> operations);
Result<Grants> DecodeGrants(std::string_view bytes);

}  // namespace bs::protocol
