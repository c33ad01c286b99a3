// Signs of float32 arrays: a bit an element, and one magnitude for each unit of 65,536 elements.
//
// With `scaling` the magnitude is the mean of the unit's, else it is 1.  Codes of a unit: the
// magnitude, a float32; then the signs, element i in bit i % 8 of byte i / 8, 1 for minus; the rest
// of the last byte is 0.  -0 counts as minus.
//
// A unit with an element that is not finite has the magnitude NaN, so that all its values are NaN.
// Its residual is multiplied by the ratio only; a product that is not finite becomes 0.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Its only parameter is a byte: 1 with scaling, else 0.
Codec OnebitCodec();

}  // namespace bs::codec
