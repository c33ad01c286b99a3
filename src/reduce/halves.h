// The specification of float16 and bfloat16 beside float32: one element at a time.
//
// Pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace bs::reduce {

inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

// Hardware differs in which operand's payload survives and in the sign of inf - inf; here a NaN
// has one form.
template <typename T>
T OneNan(T sum) {
  return sum == sum ? sum : std::numeric_limits<T>::quiet_NaN();
}

struct Bfloat16 {
  // REQUIRES: a number, or the NaN of OneNan.
  static uint16_t Narrow(float value) {
    const uint32_t bits = BitsOf(value);
    // To nearest even: the carry out of the dropped half rounds up, and 0x8000 only if odd.  A
    // carry into the exponent is right too, up to infinity; a NaN has nothing to carry.
    return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
  }
  static float Widen(uint32_t bits) { return FloatOf(bits << 16U); }
};

struct Float16 {
  static float Widen(uint32_t bits) {
    const uint32_t sign = bits >> 15U << 31U;
    const uint32_t exponent = bits >> 10U & 0x1fU;
    const uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
      return FloatOf(sign | BitsOf(static_cast<float>(fraction) * 0x1p-24F));
    }
    const uint32_t widened = exponent == 0x1f ? 0xffU : exponent + kBiasGrowth;
    return FloatOf(sign | widened << 23U | fraction << 13U);
  }

  static uint16_t Narrow(float value) {
    const uint32_t bits = BitsOf(value);
    return static_cast<uint16_t>(bits >> 31U << 15U | NarrowMagnitude(bits & 0x7fffffffU));
  }

  static uint32_t NarrowMagnitude(uint32_t magnitude) {
    constexpr uint32_t kInfinity = 0x7f800000;
    constexpr uint32_t kOverflows = 0x477ff000;  // 65520, halfway from the largest half to 2^16
    constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14
    if (magnitude > kInfinity) return 0x7e00;
    if (magnitude >= kOverflows) return 0x7c00;
    if (magnitude < kSmallestNormal) return NarrowSubnormal(magnitude);
    const uint32_t rebiased = magnitude - (kBiasGrowth << 23U);
    return (rebiased + 0xfffU + (rebiased >> 13U & 1U)) >> 13U;
  }

  // A multiple of 2^-24, to nearest even.  Integers, as an addition would follow the thread's mode.
  static uint32_t NarrowSubnormal(uint32_t magnitude) {
    const uint32_t dropped = 126 - (magnitude >> 23U);  // bits of the fraction
    if (dropped > 24) return 0;                         // less than 2^-25
    const uint32_t fraction = (magnitude & 0x7fffffU) | 0x800000U;
    const uint32_t half = 1U << (dropped - 1);
    return (fraction + half - 1 + (fraction >> dropped & 1U)) >> dropped;
  }

  static constexpr uint32_t kBiasGrowth = 127 - 15;  // of the exponent, from float16 to float32
};

}  // namespace bs::reduce
