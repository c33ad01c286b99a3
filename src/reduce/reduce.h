// Summation of arrays by dtype: one scalar specification, vector kernels picked once at start.
//
// Every kernel gives the same bits as the scalar one, for any length and alignment.  Pure functions
// on memory the caller owns; thread-safe; never fail, never block.
//
// Semantics: floating point adds in its own type, round to nearest even (float16 and bfloat16 are
// widened to float32, added, and rounded back, one rounding for each addition); integers wrap.
// NaN: the result is a NaN; which payload is not promised, but is the same in every kernel.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "bytescheduler/types.h"

namespace bs::reduce {

// One way to do the arithmetic.  A table of functions, constant after construction.
struct Kernels {
  // accumulator[i] += addend[i], i < count elements.  REQUIRES: the ranges do not overlap.
  using SumFn = void (*)(void* accumulator, const void* addend, size_t count);
  // target[i] = a[i] + b[i].  REQUIRES: target overlaps neither a nor b.
  using Sum2Fn = void (*)(void* target, const void* a, const void* b, size_t count);

  std::string_view name;  // "scalar", "avx2", "avx512"
  SumFn sum[16];          // by DType code; null for codes that are no DType
  Sum2Fn sum2[16];
};

// The specification.
const Kernels& ScalarKernels();
// All kernels this CPU can run, scalar first, fastest last.
std::span<const Kernels* const> AvailableKernels();
// The fastest of them.
const Kernels& BestKernels();

// accumulator += addend, `count` elements of `dtype`, with the kernels given.
void Sum(const Kernels& kernels, DType dtype, void* accumulator, const void* addend, size_t count);
// target = a + b.
void Sum(const Kernels& kernels, DType dtype, void* target, const void* a, const void* b,
         size_t count);
// memcpy, streaming past the cache when `size_bytes` is large.
void Copy(void* target, const void* source, size_t size_bytes);

}  // namespace bs::reduce
