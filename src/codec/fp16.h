// Fp16: each element as a float16 of two bytes, rounded to nearest even.
//
// A float16 ends at 65,504.  So a server codes a sum divided by the next power of two that is no
// less than the number of workers, and workers multiply it back: only subnormals lose bits.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  It has no parameters and keeps no residual.
Codec Fp16Codec();

}  // namespace bs::codec
