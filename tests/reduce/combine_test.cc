// Least, greatest and product of every dtype, against arithmetic that is written another way.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reduce/arrays.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

template <typename T>
std::vector<T> Combined(Reduction reduction, DType dtype, std::vector<T> a,
                        const std::vector<T>& b) {
  Combine(reduction, dtype, a.data(), b.data(), a.size());
  return a;
}

TEST(Combine, OfIntegersComparesWithTheirSignAndWraps) {
  EXPECT_EQ(Combined<int8_t>(Reduction::kMin, DType::kInt8, {-1, 5, -128}, {1, 4, 127}),
            (std::vector<int8_t>{-1, 4, -128}));
  EXPECT_EQ(Combined<uint8_t>(Reduction::kMin, DType::kUint8, {255, 5}, {1, 4}),
            (std::vector<uint8_t>{1, 4}));
  EXPECT_EQ(Combined<int32_t>(Reduction::kMax, DType::kInt32, {-5, INT32_MIN}, {-6, INT32_MAX}),
            (std::vector<int32_t>{-5, INT32_MAX}));
  EXPECT_EQ(Combined<int64_t>(Reduction::kMax, DType::kInt64, {-5, INT64_MIN}, {-6, 0}),
            (std::vector<int64_t>{-5, 0}));
  EXPECT_EQ(Combined<uint8_t>(Reduction::kProduct, DType::kUint8, {16, 255}, {17, 255}),
            (std::vector<uint8_t>{16, 1}));
  EXPECT_EQ(Combined<int8_t>(Reduction::kProduct, DType::kInt8, {-128, 3}, {-1, -4}),
            (std::vector<int8_t>{-128, -12}));
  EXPECT_EQ(Combined<int32_t>(Reduction::kProduct, DType::kInt32, {INT32_MIN, 7}, {-1, -3}),
            (std::vector<int32_t>{INT32_MIN, -21}));
  EXPECT_EQ(Combined<int64_t>(Reduction::kProduct, DType::kInt64, {INT64_MIN, 7}, {-1, -3}),
            (std::vector<int64_t>{INT64_MIN, -21}));
}

TEST(Combine, OfZerosPutsTheSignFirst) {
  const auto is_negative = [](Reduction reduction, float a, float b) {
    return std::signbit(Combined<float>(reduction, DType::kFloat32, {a}, {b})[0]);
  };
  EXPECT_TRUE(is_negative(Reduction::kMin, 0.0F, -0.0F));
  EXPECT_TRUE(is_negative(Reduction::kMin, -0.0F, 0.0F));
  EXPECT_FALSE(is_negative(Reduction::kMax, 0.0F, -0.0F));
  EXPECT_FALSE(is_negative(Reduction::kMax, -0.0F, 0.0F));
}

float WidenedAt(DType dtype, const Bytes& array, size_t index) {
  uint16_t half;
  std::memcpy(&half, array.data() + 2 * index, 2);
  if (dtype == DType::kBfloat16) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16U);
  }
  float value;
  Widen(std::span(&value, 1), std::as_bytes(std::span(&half, 1)));
  return value;
}

double ValueAt(DType dtype, const Bytes& array, size_t index) {
  if (SizeOf(dtype) == 2) return static_cast<double>(WidenedAt(dtype, array, index));
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, array.data() + 8 * index, 8);
    return value;
  }
  float value;
  std::memcpy(&value, array.data() + 4 * index, 4);
  return static_cast<double>(value);
}

class CombineFloatTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(AllFloats, CombineFloatTest,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                         DType::kBfloat16));

TEST_P(CombineFloatTest, GivesTheLeastAndTheGreatestAndNanWhereEitherIs) {
  const DType dtype = GetParam();
  std::mt19937_64 random(1);
  constexpr size_t kCount = 4001;
  const Bytes a = RandomArray(dtype, kCount, random);
  const Bytes b = RandomArray(dtype, kCount, random);
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    Bytes found = a;
    Combine(reduction, dtype, found.data(), b.data(), kCount);
    Bytes turned = b;
    Combine(reduction, dtype, turned.data(), a.data(), kCount);
    EXPECT_EQ(found, turned) << "the order changes bits";
    for (size_t i = 0; i < kCount; ++i) {
      const double x = ValueAt(dtype, a, i);
      const double y = ValueAt(dtype, b, i);
      const double got = ValueAt(dtype, found, i);
      if (std::isnan(x) || std::isnan(y)) {
        ASSERT_TRUE(std::isnan(got)) << i;
      } else {
        ASSERT_EQ(got, reduction == Reduction::kMin ? std::fmin(x, y) : std::fmax(x, y)) << i;
      }
    }
  }
}

TEST_P(CombineFloatTest, RoundsAProductOnceAndGivesOneNan) {
  const DType dtype = GetParam();
  std::mt19937_64 random(2);
  constexpr size_t kCount = 4001;
  Bytes a = RandomArray(dtype, kCount, random);
  const Bytes b = RandomArray(dtype, kCount, random);
  const Bytes first = a;
  Combine(Reduction::kProduct, dtype, a.data(), b.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const double x = ValueAt(dtype, first, i);
    const double y = ValueAt(dtype, b, i);
    const double got = ValueAt(dtype, a, i);
    if (std::isnan(x * y)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      continue;
    }
    if (dtype == DType::kFloat64) {
      ASSERT_EQ(got, x * y) << i;
    } else if (dtype == DType::kFloat32) {
      ASSERT_EQ(static_cast<float>(got), static_cast<float>(x * y)) << i;
    }
    // A product of two halves is exact in a double; the result is within half of its last place.
    if (SizeOf(dtype) == 2 && std::isfinite(got) && std::fabs(x * y) > 1e-3) {
      ASSERT_NEAR(got, x * y, std::fabs(x * y) / (dtype == DType::kFloat16 ? 2048 : 256)) << i;
    }
  }
}

TEST(Combine, AddsAsSumsDo) {
  std::mt19937_64 random(3);
  for (const DType dtype : kAllDTypes) {
    Bytes a = RandomArray(dtype, 100, random);
    const Bytes b = RandomArray(dtype, 100, random);
    Bytes expected = a;
    Sum(ScalarKernels(), dtype, expected.data(), b.data(), 100);
    Combine(Reduction::kSum, dtype, a.data(), b.data(), 100);
    EXPECT_EQ(a, expected) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace bs::reduce
