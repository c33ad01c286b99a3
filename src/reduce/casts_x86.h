// The loops of the vector casts of x86-64, over the operations of a vector.
//
// Included by the files of vector casts only, and in an anonymous namespace: kernels_x86.h says
// why.
//
// Vector has the type Floats, kElements, and these functions:
//   Load(from), Store(to, floats)   of float32
//   Spread(value)                   the value in all places
//   Multiply(a, b), Add(a, b)
//   HasNan(a, b)                    in either
//   OneNan(floats)                  any NaN as the specification's
// Half has Load(from), widened, and Store(to, first, second), two vectors rounded.
#pragma once

#include <cstddef>

#include "reduce/casts.h"

namespace bs::reduce {
namespace {

constexpr size_t kFloatBytes = 4;
constexpr size_t kHalfBytes = 2;
constexpr size_t kLine = 64;
constexpr size_t kPrefetchFloats = 2048;  // bytes ahead; 512 and 1024 gained less

// Two vectors are a step.
template <typename Vector, typename Half>
struct CastsOf {
  using Floats = typename Vector::Floats;
  static constexpr size_t kElements = 2 * Vector::kElements;
  static constexpr size_t kFloats = kElements * kFloatBytes;
  static constexpr size_t kHalves = kElements * kHalfBytes;

  struct Step {
    Floats first;
    Floats second;

    // Most have no NaN: a comparison tells it of both vectors.
    void MakeOneNan() {
      if (__builtin_expect(Vector::HasNan(first, second), 0)) {
        first = Vector::OneNan(first);
        second = Vector::OneNan(second);
      }
    }
  };
  static Step LoadFloats(const unsigned char* from) {
    return {Vector::Load(from), Vector::Load(from + kFloats / 2)};
  }
  static Step LoadHalves(const unsigned char* from) {
    return {Half::Load(from), Half::Load(from + kHalves / 2)};
  }
  static void StoreFloats(unsigned char* to, Step step) {
    step.MakeOneNan();
    Vector::Store(to, step.first);
    Vector::Store(to + kFloats / 2, step.second);
  }
  static Step Times(Step step, Floats factor) {
    return {Vector::Multiply(step.first, factor), Vector::Multiply(step.second, factor)};
  }

  static void NarrowStep(unsigned char* to, const unsigned char* from, Floats factor) {
    Step step = Times(LoadFloats(from), factor);
    step.MakeOneNan();
    Half::Store(to, step.first, step.second);
  }
  static void WidenStep(unsigned char* to, const unsigned char* from, Floats factor) {
    StoreFloats(to, Times(LoadHalves(from), factor));
  }
  static void AddStep(unsigned char* to, const unsigned char* from) {
    const Step sums = LoadFloats(to);
    const Step halves = LoadHalves(from);
    StoreFloats(to,
                {Vector::Add(sums.first, halves.first), Vector::Add(sums.second, halves.second)});
  }

  // The last elements, fewer than a step, go through the stack.
  static void Narrow(void* halves, const void* floats, size_t count, float factor) {
    auto* to = static_cast<unsigned char*>(halves);
    const auto* from = static_cast<const unsigned char*>(floats);
    const Floats factors = Vector::Spread(factor);
    for (; count >= kElements; count -= kElements, to += kHalves, from += kFloats) {
      // The CPU's own prefetching ends with a page.
      for (size_t line = 0; line < kFloats; line += kLine) {
        __builtin_prefetch(from + kPrefetchFloats + line);
      }
      NarrowStep(to, from, factors);
    }
    unsigned char wide[kFloats] = {};
    unsigned char narrow[kHalves];
    __builtin_memcpy(wide, from, count * kFloatBytes);
    NarrowStep(narrow, wide, factors);
    __builtin_memcpy(to, narrow, count * kHalfBytes);
  }

  static void Widen(void* floats, const void* halves, size_t count, float factor) {
    auto* to = static_cast<unsigned char*>(floats);
    const auto* from = static_cast<const unsigned char*>(halves);
    const Floats factors = Vector::Spread(factor);
    for (; count >= kElements; count -= kElements, to += kFloats, from += kHalves) {
      WidenStep(to, from, factors);
    }
    unsigned char wide[kFloats];
    unsigned char narrow[kHalves] = {};
    __builtin_memcpy(narrow, from, count * kHalfBytes);
    WidenStep(wide, narrow, factors);
    __builtin_memcpy(to, wide, count * kFloatBytes);
  }

  static void Add(void* floats, const void* halves, size_t count) {
    auto* to = static_cast<unsigned char*>(floats);
    const auto* from = static_cast<const unsigned char*>(halves);
    for (; count >= kElements; count -= kElements, to += kFloats, from += kHalves) {
      AddStep(to, from);
    }
    unsigned char wide[kFloats] = {};
    unsigned char narrow[kHalves] = {};
    __builtin_memcpy(wide, to, count * kFloatBytes);
    __builtin_memcpy(narrow, from, count * kHalfBytes);
    AddStep(wide, narrow);
    __builtin_memcpy(to, wide, count * kFloatBytes);
  }

  static constexpr HalfCasts kCasts = {Narrow, Widen, Add};
};

}  // namespace
}  // namespace bs::reduce
