// The specification against arithmetic that shares nothing with it: exact sums in double, by value.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reduce/arrays.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

// a + b by the specification, for one element of any type.
template <typename T>
T Added(DType dtype, T a, T b) {
  Sum(ScalarKernels(), dtype, &a, &b, 1);
  return a;
}

uint32_t AddedBits(float a, float b) {
  return std::bit_cast<uint32_t>(Added(DType::kFloat32, a, b));
}
uint64_t AddedBits(double a, double b) {
  return std::bit_cast<uint64_t>(Added(DType::kFloat64, a, b));
}

// A 16-bit format by its definition in IEEE 754, section 3.4.
struct Format {
  DType dtype;
  int fraction_bits;
  int min_exponent;  // of normal numbers
  uint16_t infinity;
  uint16_t nan;
};

constexpr Format kFloat16 = {DType::kFloat16, 10, -14, 0x7c00, 0x7e00};
constexpr Format kBfloat16 = {DType::kBfloat16, 7, -126, 0x7f80, 0x7fc0};

double ValueOf(const Format& format, uint16_t bits) {
  const int magnitude = bits & 0x7fff;
  const double sign = bits > 0x7fff ? -1.0 : 1.0;
  if (magnitude > format.infinity) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.infinity) return sign * std::numeric_limits<double>::infinity();
  const int significand_scale = 1 << format.fraction_bits;
  const int exponent = magnitude / significand_scale;
  const int fraction = magnitude % significand_scale;
  const int significand = exponent == 0 ? fraction : fraction + significand_scale;
  const int scale = format.min_exponent - format.fraction_bits + std::max(exponent - 1, 0);
  return sign * std::ldexp(significand, scale);
}

// The format's number nearest to `exact`, ties to even, by value.
double Rounded(const Format& format, double exact) {
  if (!std::isfinite(exact) || exact == 0) return exact;
  const int exponent = std::max(std::ilogb(exact), format.min_exponent);
  const double ulp = std::ldexp(1.0, exponent - format.fraction_bits);
  const double rounded = std::nearbyint(exact / ulp) * ulp;
  const double largest = ValueOf(format, static_cast<uint16_t>(format.infinity - 1));
  if (std::fabs(rounded) <= largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), exact);
}

class SixteenBitTest : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, SixteenBitTest, testing::Values(kFloat16, kBfloat16),
                         [](const auto& test) { return std::string(NameOf(test.param.dtype)); });

TEST_P(SixteenBitTest, EveryPatternPlusMinusZeroIsItself) {
  const Format& format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const bool is_nan = (bits & 0x7fff) > format.infinity;
    const uint16_t expected = is_nan ? format.nan : pattern;
    ASSERT_EQ(Added<uint16_t>(format.dtype, pattern, 0x8000), expected) << bits;
    ASSERT_EQ(Added<uint16_t>(format.dtype, 0x8000, pattern), expected) << bits;
  }
}

TEST_P(SixteenBitTest, SumsAreTheNearestToTheExactSums) {
  const Format& format = GetParam();
  std::mt19937_64 random(16);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (int i = 0; i < 24; ++i) {
      const auto a = static_cast<uint16_t>(bits);
      const auto b = static_cast<uint16_t>(RandomElement(format.dtype, random));
      // In double a sum of two such numbers has so many bits left that rounding twice is harmless.
      const double expected = Rounded(format, ValueOf(format, a) + ValueOf(format, b));
      const auto sum = Added<uint16_t>(format.dtype, a, b);
      if (std::isnan(expected)) {
        ASSERT_EQ(sum, format.nan) << a << " + " << b;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(ValueOf(format, sum)), std::bit_cast<uint64_t>(expected))
          << a << " + " << b;
    }
  }
}

TEST(Float16Test, RoundsTiesToEvenAndOverflowsToInfinity) {
  const auto add = [](uint16_t a, uint16_t b) { return Added<uint16_t>(DType::kFloat16, a, b); };
  EXPECT_EQ(add(0x3c00, 0x3c00), 0x4000);  // 1 + 1
  EXPECT_EQ(add(0x3c00, 0x1000), 0x3c00);  // 1 + 2^-11: half an ulp, to the even 1
  EXPECT_EQ(add(0x3c01, 0x1000), 0x3c02);  // half an ulp above an odd number: up
  EXPECT_EQ(add(0x7bff, 0x4bff), 0x7bff);  // 65504 + 15.99: below the halfway mark
  EXPECT_EQ(add(0x7bff, 0x4c00), 0x7c00);  // 65504 + 16: on it, to infinity
  EXPECT_EQ(add(0x03ff, 0x0001), 0x0400);  // the largest subnormal and one more
  EXPECT_EQ(add(0x7c00, 0xfc00), 0x7e00);  // inf - inf
}

TEST(Float32Test, SumsAreTheNearestToTheExactSums) {
  std::mt19937_64 random(32);
  for (int i = 0; i < 300'000; ++i) {
    const auto a =
        std::bit_cast<float>(static_cast<uint32_t>(RandomElement(DType::kFloat32, random)));
    const auto b =
        std::bit_cast<float>(static_cast<uint32_t>(RandomElement(DType::kFloat32, random)));
    // Double has 53 >= 2 * 24 + 2 bits, so rounding twice gives the same as once.
    const auto expected = static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
    const uint32_t bits = std::isnan(expected) ? 0x7fc00000U : std::bit_cast<uint32_t>(expected);
    ASSERT_EQ(AddedBits(a, b), bits) << a << " + " << b;
  }
}

TEST(Float32Test, HasOneNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(AddedBits(infinity, -infinity), 0x7fc00000U);
  EXPECT_EQ(AddedBits(std::bit_cast<float>(0xffc12345U), 1.0F), 0x7fc00000U);
  EXPECT_EQ(AddedBits(1.0F, std::bit_cast<float>(0x7f800001U)), 0x7fc00000U);
}

TEST(Float64Test, RoundsTiesToEvenKeepsSubnormalsAndHasOneNan) {
  constexpr uint64_t kOne = 0x3ff0000000000000;
  EXPECT_EQ(AddedBits(1.0, 0x1p-53), kOne);
  EXPECT_EQ(AddedBits(1.0, 0x1.8p-53), kOne + 1);
  EXPECT_EQ(AddedBits(1.0 + 0x1p-52, 0x1p-53), kOne + 2);
  EXPECT_EQ(AddedBits(0x1p-1074, 0x1p-1074), 2U);
  EXPECT_EQ(AddedBits(-0.0, -0.0), 0x8000000000000000U);
  EXPECT_EQ(AddedBits(std::numeric_limits<double>::max(), std::numeric_limits<double>::max()),
            0x7ff0000000000000U);
  EXPECT_EQ(AddedBits(std::bit_cast<double>(0xfff8000000000123U), 1.0), 0x7ff8000000000000U);
  EXPECT_EQ(AddedBits(1.0, std::bit_cast<double>(0x7ff0000000000001U)), 0x7ff8000000000000U);
}

TEST(IntegerTest, BytesWrapForEveryPair) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const int sum = (a + b) % 256;
      ASSERT_EQ(Added(DType::kUint8, static_cast<uint8_t>(a), static_cast<uint8_t>(b)), sum);
      ASSERT_EQ(Added(DType::kInt8, static_cast<int8_t>(a), static_cast<int8_t>(b)),
                static_cast<int8_t>(sum));
    }
  }
}

TEST(IntegerTest, WideIntegersWrapAtBothEnds) {
  constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Added(DType::kInt32, kMax32, 1), kMin32);
  EXPECT_EQ(Added(DType::kInt32, kMin32, -1), kMax32);
  EXPECT_EQ(Added(DType::kInt32, 1'000'000'000, -1'000'000'001), -1);
  EXPECT_EQ(Added<int64_t>(DType::kInt64, kMax64, 1), kMin64);
  EXPECT_EQ(Added<int64_t>(DType::kInt64, kMin64, -1), kMax64);
  EXPECT_EQ(Added<int64_t>(DType::kInt64, 0xffffffff, 1), 0x100000000);
}

}  // namespace
}  // namespace bs::reduce
