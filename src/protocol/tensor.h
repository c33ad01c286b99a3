// Tensor: a declared key, its partitions and their servers, the same on all workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"

namespace bs::protocol {

// Every partition but the last is a multiple of this: a cache line, and whole elements of any
// dtype.
inline constexpr uint64_t kAlignBytes = 64;

struct Tensor {
  Key key = 0;
  DType dtype = DType::kFloat32;
  Mode mode = Mode::kSynchronous;
  uint64_t size_bytes = 0;
  uint64_t partition_bytes = 0;  // a multiple of kAlignBytes
  std::vector<Partition> partitions;
  uint32_t layout_version = 0;  // counts the layouts of the key
  uint32_t first_layout = 0;    // its layout version when it was declared
  std::string about{};          // of a key with one partition; known to rank 0 only
  bool hosted = false;          // as above
};

// Returns the tensor with the numbers of its layout and nothing else, for a back end that keeps
// many of them.
inline Tensor WithoutPartitions(const Tensor& tensor) {
  return {.key = tensor.key,
          .dtype = tensor.dtype,
          .mode = tensor.mode,
          .size_bytes = tensor.size_bytes,
          .partition_bytes = tensor.partition_bytes,
          .partitions = {},
          .layout_version = tensor.layout_version,
          .first_layout = tensor.first_layout};
}

}  // namespace bs::protocol
