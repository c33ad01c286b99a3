// Two-bit codes of float32 arrays, as MXNet's gradient compression has them, bit for bit.
//
// An element becomes +threshold, -threshold or 0.  The rest stays in a residual and is added to the
// element of the next round (error feedback).  Sixteen codes make a word of
// four bytes: element i is in byte i / 4, the first of four in the two highest bits.  Codes: 3 is
// +threshold, 2 is -threshold, 0 and 1 are 0; the rest of the last word is 0.
//
// Pure functions on memory the caller owns; any alignment; thread-safe; never fail, never block.
// They round to nearest and keep subnormals, whatever the calling thread is set to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Its only parameter is the threshold, a float32, 0.5 if not given.  Sums may
// travel in it, in the threshold of the gradients.
Codec TwoBitCodec();
// In two bits with that threshold; not compressed if it is 0.
Coding TwoBitCoding(float threshold);

}  // namespace bs::codec

namespace bs::codec {

// Bytes of the words of `count` elements.
constexpr size_t TwoBitBytes(size_t count) { return (count / 16 + (count % 16 != 0 ? 1 : 0)) * 4; }

// residual += in; elements that reach the threshold, of either sign, are diminished by it and coded
// in `words`, which has TwoBitBytes(count).  A residual that is NaN stays NaN, and its code is 0.
// REQUIRES, of all three: 0 < threshold < infinity; the ranges do not overlap.
void QuantizeTwoBit(float threshold, const void* in, float* residual, void* words, size_t count);
// target = the values of `words`.
void DequantizeTwoBit(float threshold, const void* words, void* target, size_t count);
// sum += the values of `words`.  A sum that is NaN becomes the NaN of reduce.h.
void AddTwoBit(float threshold, const void* words, void* sum, size_t count);

}  // namespace bs::codec
