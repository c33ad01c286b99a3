// Summation of arrays by dtype: one scalar specification, vector kernels picked once at start.
//
// Every kernel gives the same bits as the scalar kernel, for any length and alignment.  Pure
// functions on memory the caller owns; thread-safe; never fail, never block.
//
// Semantics: floating point adds in its own type, round to nearest even; subnormals are kept;
// integers wrap.  float16 and bfloat16 are widened to float32, added, and rounded back, which gives
// the bits of a single rounding of the exact sum.
// NaN: every NaN result is the positive quiet NaN without payload (0x7fc00000, 0x7e00, ...),
// whatever the operands.  So sums do not depend on the order that a compiler gives the operands of
// an addition.
// The sum of several inputs is ((a + b) + c) + ..., every partial sum rounded: it has the bits of
// adding each input in turn.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/types.h"

namespace bs::reduce {

// A kernel adds this many inputs in one pass.
inline constexpr size_t kMaxFusedInputs = 4;

// A way to do the arithmetic.  A table of functions, constant after construction.
//
// The functions run in the caller's floating-point environment; Sum() below sets the default
// environment.
struct Kernels {
  // target[i] = inputs[0][i] + inputs[1][i] + ..., i < count elements.
  // REQUIRES: 2 <= num_inputs <= kMaxFusedInputs; target is inputs[0] or overlaps no input.
  using SumFn = void (*)(void* target, const void* const* inputs, size_t num_inputs, size_t count);

  std::string_view name;  // "scalar", "avx2", "avx512", "avx512fp16"
  SumFn sum[16];          // by DType code; null for codes that are no DType
};

// The specification.
const Kernels& ScalarKernels();
// All kernels this CPU can run, scalar first, fastest last.
std::span<const Kernels* const> AvailableKernels();
// The fastest of them.
const Kernels& BestKernels();

// accumulator += addend, `count` elements of `dtype`, with the kernels given.  Rounds to nearest
// and keeps subnormals even where a library has set the calling thread otherwise.
// REQUIRES: the ranges do not overlap.
void Sum(const Kernels& kernels, DType dtype, void* accumulator, const void* addend, size_t count);
// target = a + b.  REQUIRES: target is a, or overlaps neither.
void Sum(const Kernels& kernels, DType dtype, void* target, const void* a, const void* b,
         size_t count);
// target = inputs[0] + inputs[1] + ..., every array read from memory and written to it once.
// REQUIRES: at least two inputs; target is inputs[0], or overlaps none.
void SumInputs(const Kernels& kernels, DType dtype, void* target,
               std::span<const void* const> inputs, size_t count);
// accumulator = accumulator (reduction) addend, `count` elements.  A sum is that of BestKernels.
// Products round, wrap and widen as sums do.  The least and the greatest of floating point is NaN
// where either is, and -0 is less than +0.  So the order of two contributions changes no bit.
// REQUIRES: the ranges do not overlap.
void Combine(Reduction reduction, DType dtype, void* accumulator, const void* addend, size_t count);
// Returns true for floating point: Scale cannot multiply integers.
constexpr bool CanScale(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}
// array[i] = array[i] * factor, `count` elements.  float64 multiplies by `factor`, the other types
// by the float32 nearest to it; float16 and bfloat16 are widened to float32, and rounded once.  NaN
// and subnormals are as in sums.  REQUIRES: CanScale(dtype).
void Scale(DType dtype, void* array, size_t count, double factor);
// float16 to float32, exactly, and back to the nearest even.  REQUIRES: as many elements on both
// sides.
void Widen(std::span<float> target, std::span<const std::byte> halves);
void Narrow(std::span<std::byte> halves, std::span<const float> source);
// memcpy, streaming past the cache when `size_bytes` is large (x86: from 16 MiB).
void Copy(void* target, const void* source, size_t size_bytes);

}  // namespace bs::reduce
