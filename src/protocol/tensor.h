// Tensor: a declared key: how its tensor is cut and which server has which piece, the same on all
// workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bytescheduler/types.h"

namespace bs::worker {

// Every partition but the last is a multiple of this: a cache line, and whole elements of any
// dtype.
inline constexpr uint64_t kAlignBytes = 64;

struct Tensor {
  Key key = 0;
  DType dtype = DType::kFloat32;
  Mode mode = Mode::kSynchronous;
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;  // a multiple of kAlignBytes
  std::vector<Partition> partitions;
  uint32_t cut = 0;     // how often it had been cut anew before
  std::string about{};  // of a key in one piece; known to rank 0 only
  bool hosted = false;  // as above
};

}  // namespace bs::worker
