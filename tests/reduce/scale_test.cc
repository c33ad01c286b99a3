// Scale against products that the test rounds itself, for every number of the short formats.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

constexpr double kThird = 1.0 / 3;

template <typename T>
std::vector<T> Scaled(DType dtype, std::vector<T> values, double factor) {
  Scale(dtype, values.data(), values.size(), factor);
  return values;
}

template <typename Bits, typename T>
void ExpectSameBits(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(std::bit_cast<Bits>(got[i]), std::bit_cast<Bits>(want[i])) << i;
  }
}

TEST(Scale, FloatsAreMultipliedByTheFloatNearestToTheFactor) {
  const std::vector<float> values = {
      1.0F, -0.0F, 3e38F, 1e-45F, 7.0F, 0x1p-126F, std::numeric_limits<float>::infinity()};
  for (const int workers : {2, 3, 7, 1000}) {
    const float factor = 1.0F / static_cast<float>(workers);
    std::vector<float> want = values;
    for (float& value : want) value = value * factor;
    ExpectSameBits<uint32_t>(Scaled(DType::kFloat32, values, 1.0 / workers), want);
  }
  const std::vector<double> doubles = {1.0, -0.0, 5e-324, 1e300};
  std::vector<double> want = doubles;
  for (double& value : want) value *= kThird;
  ExpectSameBits<uint64_t>(Scaled(DType::kFloat64, doubles, kThird), want);
}

TEST(Scale, ThereIsOneNan) {
  const std::vector<float> got =
      Scaled<float>(DType::kFloat32, {std::bit_cast<float>(0xffc12345U)}, kThird);
  EXPECT_EQ(std::bit_cast<uint32_t>(got[0]), 0x7fc00000U);
}

std::vector<uint16_t> AllBits() {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

TEST(Scale, HalvesAreWidenedAndRoundedOnce) {
  const std::vector<uint16_t> all = AllBits();
  std::vector<float> values(all.size());
  Widen(values, std::as_bytes(std::span(all)));
  for (float& value : values) value = std::isnan(value) ? std::nanf("") : value * 0.75F;
  std::vector<uint16_t> want(all.size());
  Narrow(std::as_writable_bytes(std::span(want)), values);
  EXPECT_EQ(Scaled(DType::kFloat16, all, 0.75), want);
}

// The bfloat16 nearest to `value`, ties to even, found by trying both neighbours.
uint16_t NearestBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto below = static_cast<uint16_t>(bits >> 16U);
  if (std::isnan(value)) return 0x7fc0;
  if (std::isinf(value)) return below;
  const auto at = [](uint32_t half) {
    return static_cast<double>(std::bit_cast<float>(half << 16U));
  };
  const double to_below = std::fabs(value - at(below));
  const double to_above = std::fabs(at(below + 1U) - value);
  const bool up = to_above < to_below || (to_above == to_below && (below & 1U) == 1);
  return up ? static_cast<uint16_t>(below + 1U) : below;
}

TEST(Scale, Bfloat16IsWidenedAndRoundedOnce) {
  const std::vector<uint16_t> all = AllBits();
  const std::vector<uint16_t> got = Scaled(DType::kBfloat16, all, kThird);
  for (const uint16_t bits : all) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
    ASSERT_EQ(got[bits], NearestBfloat16(value * static_cast<float>(kThird))) << bits;
  }
}

TEST(Scale, AnyAddressWillDoAndTheNeighboursStay) {
  std::vector<std::byte> bytes(1 + 3 * sizeof(float) + 1, std::byte{0x55});
  const float values[] = {2, 4, 6};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  Scale(DType::kFloat32, bytes.data() + 1, 3, 0.5);
  float halves[3];
  std::memcpy(halves, bytes.data() + 1, sizeof(halves));
  EXPECT_EQ(halves[0], 1);
  EXPECT_EQ(halves[2], 3);
  EXPECT_EQ(bytes.front(), std::byte{0x55});
  EXPECT_EQ(bytes.back(), std::byte{0x55});
}

TEST(Scale, TheCallersRoundingDoesNotCount) {
  const std::vector<float> want = Scaled<float>(DType::kFloat32, {1.0F, 5.0F}, kThird);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const std::vector<float> got = Scaled<float>(DType::kFloat32, {1.0F, 5.0F}, kThird);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  ExpectSameBits<uint32_t>(got, want);
}

TEST(Scale, IntegersCannotBeScaled) {
  EXPECT_TRUE(CanScale(DType::kFloat16));
  for (const DType dtype : {DType::kUint8, DType::kInt8, DType::kInt32, DType::kInt64}) {
    EXPECT_FALSE(CanScale(dtype));
  }
}

}  // namespace
}  // namespace bs::reduce
