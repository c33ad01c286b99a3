// The loops of the vector kernels of x86-64, over any type that has the operations of a step.
//
// Included by the files of vector kernels only: compiled once for each, and therefore in an
// anonymous namespace (kernels_x86.h).
//
// Element has kElementBytes, kStepBytes (of an array in a step) and kPrefetch.  That is true if a
// step takes so long that the CPU sees too few of the loads to come.  Its functions are:
//   Load(from)         a step's elements, in the type in which they are added
//   Add(a, b)          their sums, not yet rounded for storage
//   Round(sums)        rounded, and in the type in which they are added; any NaN stays some NaN
//   Store(to, sums)    rounded and stored, any NaN as the specification's
#pragma once

#include <cstddef>

#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kPrefetchBytes = 8 * kLineBytes;  // ahead

// Not left to the compiler, which called it for each step of bfloat16.
template <typename Element, size_t kInputs>
[[gnu::always_inline]] inline void SumStep(unsigned char* to,
                                           const unsigned char* const (&from)[kInputs],
                                           size_t offset_bytes) {
  auto sums = Element::Load(from[0] + offset_bytes);
  sums = Element::Add(sums, Element::Load(from[1] + offset_bytes));
  for (size_t i = 2; i < kInputs; ++i) {
    sums = Element::Add(Element::Round(sums), Element::Load(from[i] + offset_bytes));
  }
  Element::Store(to + offset_bytes, sums);
}

// The last elements, fewer than a step, go through the stack.
template <typename Element, size_t kInputs>
void SumTail(unsigned char* to, const unsigned char* const (&from)[kInputs], size_t size_bytes) {
  unsigned char copies[kInputs][Element::kStepBytes] = {};
  const unsigned char* padded[kInputs];
  for (size_t i = 0; i < kInputs; ++i) {
    __builtin_memcpy(copies[i], from[i], size_bytes);
    padded[i] = copies[i];
  }
  SumStep<Element, kInputs>(copies[0], padded, 0);
  __builtin_memcpy(to, copies[0], size_bytes);
}

template <typename Element, size_t kInputs>
void SumOf(void* target, const void* const* inputs, size_t count) {
  auto* to = static_cast<unsigned char*>(target);
  const unsigned char* from[kInputs];
  for (size_t i = 0; i < kInputs; ++i) from[i] = static_cast<const unsigned char*>(inputs[i]);
  const size_t size_bytes = count * Element::kElementBytes;
  const size_t whole_bytes = size_bytes / Element::kStepBytes * Element::kStepBytes;
  for (size_t at = 0; at < whole_bytes; at += Element::kStepBytes) {
    if (Element::kPrefetch && at % kLineBytes == 0) {
      for (const unsigned char* array : from) __builtin_prefetch(array + at + kPrefetchBytes);
    }
    SumStep<Element, kInputs>(to, from, at);
  }
  if (whole_bytes == size_bytes) return;
  for (const unsigned char*& rest : from) rest += whole_bytes;
  SumTail<Element, kInputs>(to + whole_bytes, from, size_bytes - whole_bytes);
}

template <typename Element>
void Sum(void* target, const void* const* inputs, size_t num_inputs, size_t count) {
  static_assert(kMaxFusedInputs == 4);
  switch (num_inputs) {
    case 2:
      return SumOf<Element, 2>(target, inputs, count);
    case 3:
      return SumOf<Element, 3>(target, inputs, count);
    default:
      return SumOf<Element, 4>(target, inputs, count);
  }
}

}  // namespace
}  // namespace bs::reduce
