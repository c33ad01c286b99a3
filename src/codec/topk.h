// Topk: of each unit of 65,536 elements the largest in size.
//
// Among equal elements the lowest index comes first.  Codes of a unit: the indices, uint16,
// ascending; then the values in that order, float32 or float16 (picks.h).  The other elements are
// 0.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Its parameters are those of picks.h.
Codec TopkCodec();

}  // namespace bs::codec
