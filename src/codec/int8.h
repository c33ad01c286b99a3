// Int8: a byte an element, dithered between 127 linear levels of the largest magnitude in 256.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Codes and parameters are those of dithering with these options.
Codec Int8Codec();

}  // namespace bs::codec
