// The loops of dithering over sixteen elements at a time: a scalar specification, and vector
// kernels that give its bits.
//
// Pure functions on memory the caller owns; any alignment; thread-safe; in the default
// floating-point environment.  A kernel's file is compiled for its CPUs: it shares no inline
// function with other files, which a linker could take from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bs::codec {

inline constexpr size_t kDitherBlock = 16;  // elements

// Elements that are coded: in + ratio * residual, with the product rounded, or `in` if `residual`
// is null.
struct DitherInput {
  const unsigned char* in;  // float32
  float* residual;
  float ratio;
};

// The levels of a bucket.  Linear: level l is l / count of the norm.  Natural: level 0 is 0, and l
// is 2^(l - count) of the norm.
struct DitherLevels {
  float norm;
  uint32_t count;  // the level that is the norm; natural: at most 30
  uint32_t width;  // bits of a code: 2, 4, 8, or 16 where linear; the highest is the sign
  bool is_natural;
};

// Xorshift128+ in four lanes.  A block takes a step: its element 4 l + w gets bits 16 w to
// 16 w + 15 of lane l.
struct DitherRandom {
  uint64_t first[4];
  uint64_t second[4];
};

struct DitherKernels {
  std::string_view name;  // "scalar", "avx2", "avx512"
  // The bits of the largest magnitude.  Those of infinity, or more, if an element is not finite.
  uint32_t (*largest)(const DitherInput& input, size_t blocks);
  // lanes[j] += the square of each element 8 i + j, in that order.
  void (*add_squares)(const DitherInput& input, size_t blocks, double* lanes);
  // Codes, the first of them in the lowest bits; their values are subtracted from what is coded,
  // and the rest is the new residual.  An element between two levels gets the upper one if its
  // share of the gap, times 65,536, is above its random number and a half.  Level 0 has no sign.
  // REQUIRES: no element exceeds the norm, which is finite.
  void (*code)(const DitherInput& input, const DitherLevels& levels, size_t blocks,
               DitherRandom* random, unsigned char* codes);
  // The values of codes put, or added, to float32 elements.  A NaN is the one of reduce.h.
  void (*put)(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
              unsigned char* target);
  void (*add)(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
              unsigned char* target);
};

// The specification.
const DitherKernels& ScalarDithering();
// Vector kernels, where the compiler makes them.
const DitherKernels& Avx2Dithering();
const DitherKernels& Avx512Dithering();

// All that this CPU can run, scalar first, fastest last.
std::span<const DitherKernels* const> AvailableDithering();

}  // namespace bs::codec
