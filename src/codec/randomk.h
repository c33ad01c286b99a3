// Randomk: of each unit of 65,536 elements some that all nodes of the job draw alike.
//
// So codes of a unit are values alone, float32 or float16 (picks.h), in the order of the draw
// (permutation.h), which depends on seed, key, unit and round.  The sum travels as its values at
// the same places, so servers lose nothing and keep no residual.  A worker without a residual
// multiplies what it sends by n / k of the unit, so that the mean is right.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Its parameters are those of picks.h.
Codec RandomkCodec();

}  // namespace bs::codec
