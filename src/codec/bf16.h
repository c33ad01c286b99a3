// Bf16: each element as a bfloat16 of two bytes, rounded to nearest even.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

inline constexpr uint32_t kBf16Id = 3;  // on the wire

// The codec's row.  It has no parameters and keeps no residual.
Codec Bf16Codec();
// Of sums.
Coding Bf16Coding();

}  // namespace bs::codec
