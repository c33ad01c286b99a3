// Casts against roundings that the test makes itself, and the vector code against the scalar.
#include "reduce/casts.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reduce/arrays.h"
#include "reduce/float_environment.h"

namespace bs::reduce {
namespace {

// The double nearest to `value` with so many bits behind the point, at least `least_exponent` + 1
// below the smallest normal number; infinite from `overflows` on.
double Rounded(double value, int fraction_bits, int least_exponent, double overflows) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(value / unit) * unit;  // ties to even
  return std::abs(rounded) >= overflows ? std::copysign(INFINITY, value) : rounded;
}

double AsBfloat16(double value) { return Rounded(value, 7, -126, std::ldexp(1.0, 128)); }
double AsFloat16(double value) { return Rounded(value, 10, -14, 65536); }

double NumberOfFloat16(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const double fraction = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double NumberOfBfloat16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16U); }

std::vector<float> Interesting() {
  std::mt19937_64 random(7);
  std::vector<float> values(20000);
  const Bytes bytes = RandomArray(DType::kFloat32, values.size(), random);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (int i = 0; i < 5000; ++i) {
    values.push_back(
        std::ldexp(static_cast<float>(random() % 8192), static_cast<int>(random() % 60) - 40));
    values.push_back(-values.back());
  }
  for (const float value : {0.0F, -0.0F, 65504.0F, 65519.0F, 65520.0F, 0x1p-24F, 0x1p-25F,
                            0x1p-149F, 0x1.fffffep127F, 0x1.fep127F, 0x1.ffp127F}) {
    values.push_back(value);
  }
  return values;
}

TEST(Casts, RoundToTheNearestEvenNumber) {
  const DefaultFloatEnvironment environment;
  const std::vector<float> values = Interesting();
  std::vector<uint16_t> halves(values.size());
  for (const Casts* casts : AvailableCasts()) {
    casts->bfloat16.narrow(halves.data(), values.data(), values.size(), 1);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_EQ(halves[i], 0x7fc0) << casts->name;
        continue;
      }
      ASSERT_EQ(NumberOfBfloat16(halves[i]), AsBfloat16(values[i])) << casts->name << values[i];
      ASSERT_EQ(halves[i] >> 15, std::signbit(values[i]) ? 1 : 0);
    }
    casts->float16.narrow(halves.data(), values.data(), values.size(), 0.25F);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_EQ(halves[i], 0x7e00) << casts->name;
        continue;
      }
      // The product is exact but for subnormals of float32, which are zeros here.
      ASSERT_EQ(NumberOfFloat16(halves[i]), AsFloat16(0.25 * values[i]))
          << casts->name << values[i];
    }
  }
}

TEST(Casts, NarrowAlikeInEachRoundingMode) {
  const std::vector<float> values = {0x1p-30F, 0x1p-25F, 0x1.8p-24F, 0x1p-14F + 0x1p-26F,
                                     1 + 0x1p-20F};
  const std::vector<uint16_t> halves = {0, 0, 2, 0x0400, 0x3c00};
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    for (const Casts* casts : AvailableCasts()) {
      std::vector<uint16_t> codes(values.size(), 9);
      ASSERT_EQ(std::fesetround(mode), 0);
      casts->float16.narrow(codes.data(), values.data(), values.size(), 1);
      ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
      EXPECT_EQ(codes, halves) << casts->name << " in mode " << mode;
    }
  }
}

TEST(Casts, WidenExactly) {
  const DefaultFloatEnvironment environment;
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  for (const Casts* casts : AvailableCasts()) {
    casts->float16.widen(floats.data(), halves.data(), halves.size(), 4);
    for (size_t i = 0; i < halves.size(); ++i) {
      const double want = NumberOfFloat16(halves[i]) * 4;
      if (std::isnan(want)) {
        ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), 0x7fc00000U) << casts->name;
      } else {
        ASSERT_EQ(floats[i], want) << casts->name;
      }
    }
    casts->bfloat16.widen(floats.data(), halves.data(), halves.size(), 1);
    for (size_t i = 0; i < halves.size(); ++i) {
      const double want = NumberOfBfloat16(halves[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]),
                std::isnan(want) ? 0x7fc00000U : static_cast<uint32_t>(i) << 16U);
    }
  }
}

// Bytes around the array, which no cast may touch.
constexpr size_t kGuard = 64;

struct Outcome {
  Bytes narrowed;
  Bytes widened;
  Bytes added;
  bool operator==(const Outcome&) const = default;
};

Outcome Apply(const HalfCasts& casts, const Bytes& floats, const Bytes& halves, size_t count,
              size_t shift) {
  const auto guarded = [&](size_t size_bytes) { return Bytes(size_bytes + 2 * kGuard, 0xab); };
  Outcome outcome{guarded(count * 2), guarded(count * 4), guarded(count * 4)};
  casts.narrow(outcome.narrowed.data() + shift, floats.data() + shift, count, 0.5F);
  casts.widen(outcome.widened.data() + shift, halves.data() + shift, count, 2);
  std::memcpy(outcome.added.data() + shift, floats.data() + shift, count * 4);
  casts.add(outcome.added.data() + shift, halves.data() + shift, count);
  return outcome;
}

TEST(Casts, GiveTheBitsOfTheScalarAtAnyPlace) {
  const DefaultFloatEnvironment environment;
  std::mt19937_64 random(11);
  for (size_t count = 0; count < 70; ++count) {
    const size_t shift = random() % 7;
    const Bytes floats = RandomArray(DType::kFloat32, count + 2, random);
    const Bytes bfloats = RandomArray(DType::kBfloat16, count + 4, random);
    const Bytes halves = RandomArray(DType::kFloat16, count + 4, random);
    for (const Casts* casts : AvailableCasts()) {
      EXPECT_EQ(Apply(casts->bfloat16, floats, bfloats, count, shift),
                Apply(ScalarCasts().bfloat16, floats, bfloats, count, shift))
          << casts->name << count;
      EXPECT_EQ(Apply(casts->float16, floats, halves, count, shift),
                Apply(ScalarCasts().float16, floats, halves, count, shift))
          << casts->name << count;
    }
  }
}

}  // namespace
}  // namespace bs::reduce
