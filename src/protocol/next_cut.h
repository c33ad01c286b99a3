// NextCut: what rank 0 says with its push of a round about the rounds after it.
//
// It comes back to every worker with that round's sum.  Nobody can push the next round without that
// sum, which needs rank 0's push: so all cut the next round in the same way, whoever is ahead.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "protocol/tensor.h"

namespace bs::worker {

struct NextCut {
  uint64_t decision = 0;      // of rank 0, counted: of two credits the later decision's holds
  uint64_t credit_bytes = 0;  // of every worker; at least 1
  uint64_t part_bytes = 0;    // 0: the key stays as it is cut
  std::vector<Partition> partitions{};
};

// Converts to bytes for the wire (little-endian), and back.
std::string Encode(const NextCut& next);
// kInternal, naming the key, if the bytes make no sense for `tensor`.
Result<NextCut> DecodeNextCut(std::string_view bytes, const Tensor& tensor, uint32_t num_servers);

// True if `part_bytes`, a multiple of kAlignBytes, would give `tensor` another layout.  A layout of
// more than 2^20 partitions is not made: the tensor stays as it is.
bool WouldChange(const Tensor& tensor, uint64_t part_bytes);

}  // namespace bs::worker
