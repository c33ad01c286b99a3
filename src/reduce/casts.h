// Casts of float32 arrays to float16 and bfloat16, and back: a scalar specification, and vector
// kernels that give its bits.
//
// Pure functions on memory the caller owns; any alignment; thread-safe; never fail, never block.
// They round to nearest even and keep subnormals, whatever the calling thread is set to.  A NaN
// becomes the one NaN of reduce.h.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace bs::reduce {

// The casts of one type of 16 bits.  They run in the caller's floating-point environment.
struct HalfCasts {
  // halves[i] = floats[i] * factor, rounded once where the factor is a power of two.
  void (*narrow)(void* halves, const void* floats, size_t count, float factor);
  // floats[i] = halves[i] * factor.
  void (*widen)(void* floats, const void* halves, size_t count, float factor);
  // floats[i] += halves[i].
  void (*add)(void* floats, const void* halves, size_t count);
};

struct Casts {
  std::string_view name;  // "scalar", "avx2", "avx512"
  HalfCasts float16;
  HalfCasts bfloat16;
};

// The specification.
const Casts& ScalarCasts();
// All that this CPU can run, scalar first, fastest last.
std::span<const Casts* const> AvailableCasts();
// The fastest of them.
const Casts& BestCasts();

}  // namespace bs::reduce
