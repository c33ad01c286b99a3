// Limits: bounds that workers check before they ask, and servers check before they accept.
#pragma once

#include <cstddef>

namespace bs::protocol {

// Partitions of one tensor.
inline constexpr size_t kMaxPartitions = size_t{1} << 24U;
// Bytes of a key's description.
inline constexpr size_t kMaxAboutBytes = 1024;

}  // namespace bs::protocol
