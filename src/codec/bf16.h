// Bf16: each element as a bfloat16 of two bytes, rounded to nearest even.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  It has no parameters and keeps no residual.
Codec Bf16Codec();
// Sums travel in it with the option pull.
Coding Bf16Coding();

}  // namespace bs::codec
