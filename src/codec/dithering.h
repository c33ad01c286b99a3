// Dithering of float32 arrays: each element becomes one of a few levels of the norm of its bucket,
// drawn so that the mean of many rounds is the element (QSGD; natural dithering).
//
// A unit of 65,536 elements has buckets, the last of a tensor shorter.  The norm N of a bucket is
// its largest magnitude, or the square root of its sum of squares, which no more than the largest
// float32 stands for.  An element is between two levels, and gets the upper one with a probability
// that is its share of the gap.
//
//   linear    level l is l / s of N; D = (l / s) * N, each rounded
//   natural   level 0 is 0, and l is 2^(l - s) of N
//
// A code has the least of 2, 4, 8 and 16 bits that holds s and a sign.  Codes of a unit: the norms,
// float32; then the codes, element i in bits b i to b i + b - 1, lowest first, the sign in the
// highest of them; the rest of the last byte is 0.  Level 0 is coded without a sign.  A unit with
// an element that is not finite has norms that are NaN, and codes of 0; feedback.h has its
// residual.
//
// Random numbers: splitmix64 takes in seed, key, unit of the tensor, round, and rank (kServerRank:
// a server), and its next words are the two states of each of four lanes of xorshift128+.  A step
// has 16 bits for each of 16 elements.  So repeats, lost nodes and partitions change no code.
//
// Where a user gives no seed, it is the job's number: jobs differ, workers need not agree on it by
// messages, and a worker in a lost one's place has it.
#pragma once

#include "codec/codec.h"

namespace bs::codec {

// The codec's row.  Its parameters have 15 bytes, little-endian: a byte with 1 for natural levels
// and 2 for the L2 norm; the number of levels in 2, elements of a bucket in 4, the seed in 8, 0 for
// the job's number.
Codec DitheringCodec();

}  // namespace bs::codec
