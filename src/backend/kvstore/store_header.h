// StoreHeader: rank 0's description of a tensor, published through a stock store.
//
// A stock server sums and keeps floats only.  So each 16 bits travel as one float32, which holds
// them exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace bs::backend {

struct StoreHeader {
  Key key = 0;
  uint64_t size_bytes = 0;
  uint64_t partition_bytes = 0;
  uint32_t dtype = 0;
  uint32_t scale = 0;  // of rank 0's partitions, as measured (backend/kvstore/store_scale.h)

  bool operator==(const StoreHeader&) const = default;
};

inline constexpr uint64_t kStoreHeaderBytes = 16 * sizeof(float);

std::vector<std::byte> Encode(const StoreHeader& header);
// Returns nothing if the bytes are no header.
std::optional<StoreHeader> DecodeStoreHeader(std::span<const std::byte> bytes);

}  // namespace bs::backend
