// The loops of the vector casts of x86-64, over the operations of a vector.
//
// Included by the files of vector casts only, and in an anonymous namespace: kernels_x86.h says
// why.
//
// Vector has the type Floats, kElements, and these functions:
//   Load(from), Store(to, floats)   of float32
//   Spread(value)                   the value in all places
//   Multiply(a, b), Add(a, b)
//   OneNan(floats)                  any NaN as the specification's
// Half has Load(from), widened, and Store(to, floats), rounded.
#pragma once

#include <cstddef>

#include "reduce/casts.h"

namespace bs::reduce {
namespace {

constexpr size_t kFloatBytes = 4;
constexpr size_t kHalfBytes = 2;

template <typename Vector, typename Half>
struct CastsOf {
  using Floats = typename Vector::Floats;
  static constexpr size_t kFloats = Vector::kElements * kFloatBytes;
  static constexpr size_t kHalves = Vector::kElements * kHalfBytes;

  static void NarrowStep(unsigned char* to, const unsigned char* from, Floats factor) {
    Half::Store(to, Vector::OneNan(Vector::Multiply(Vector::Load(from), factor)));
  }
  static void WidenStep(unsigned char* to, const unsigned char* from, Floats factor) {
    Vector::Store(to, Vector::OneNan(Vector::Multiply(Half::Load(from), factor)));
  }
  static void AddStep(unsigned char* to, const unsigned char* from) {
    Vector::Store(to, Vector::OneNan(Vector::Add(Vector::Load(to), Half::Load(from))));
  }

  // The last elements, fewer than a step, go through the stack.
  static void Narrow(void* halves, const void* floats, size_t count, float factor) {
    auto* to = static_cast<unsigned char*>(halves);
    const auto* from = static_cast<const unsigned char*>(floats);
    const Floats factors = Vector::Spread(factor);
    for (; count >= Vector::kElements; count -= Vector::kElements, to += kHalves, from += kFloats) {
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
    for (; count >= Vector::kElements; count -= Vector::kElements, to += kFloats, from += kHalves) {
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
    for (; count >= Vector::kElements; count -= Vector::kElements, to += kFloats, from += kHalves) {
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
