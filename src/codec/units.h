// The unit of the engine's codecs that cut keys.
#pragma once

#include <cstdint>

namespace bs::codec {

inline constexpr uint64_t kUnitElements = 65536;  // 256 KiB of float32

}  // namespace bs::codec
