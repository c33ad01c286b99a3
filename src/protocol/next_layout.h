// NextLayout: the layout of a key from the next round on, which rank 0 sends with its push.
//
// It comes back to every worker with that round's sum.  No worker can push the next round without
// that sum, which needs rank 0's push.  So all workers use the same layout in the next round.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/tensor.h"

namespace bs::protocol {

// Most partitions of a tensor: a message has room for them, and a server beside the layout before.
inline constexpr uint64_t kMostPartitions = uint64_t{1} << 20U;

struct NextLayout {
  uint64_t decision = 0;         // number of rank 0's decision: the credit of the latest holds
  uint64_t credit_bytes = 0;     // of every worker; at least 1
  uint64_t partition_bytes = 0;  // 0: the layout stays
  std::vector<Partition> partitions{};
};

// The part of it that is about the worker.
struct Decision {
  uint64_t number = 0;
  uint64_t credit_bytes = 0;

  bool operator==(const Decision&) const = default;
};
// Nothing if the bytes make no sense.
std::optional<Decision> DecisionIn(std::string_view bytes);

// Converts to bytes for the wire (little-endian), and back.
std::string Encode(const NextLayout& next);
// kInternal, naming the key, if the bytes make no sense for `tensor`.
Result<NextLayout> DecodeNextLayout(std::string_view bytes, const Tensor& tensor,
                                    uint32_t num_servers);

// True if `partition_bytes`, a multiple of kAlignBytes, would give `tensor` another layout.  A
// layout of more than kMostPartitions is not made: the tensor stays as it is.
bool WouldChange(const Tensor& tensor, uint64_t partition_bytes);

}  // namespace bs::protocol
