// U2: the kernels of every CPU make the bits of the specification.
#include "codec/kernels/dithering_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reduce/casts.h"

namespace bs::codec {
namespace {

using AnyBytes = std::vector<unsigned char>;

struct LevelsCase {
  uint32_t count;
  uint32_t width;
  bool is_natural;
};
constexpr LevelsCase kLevelsCases[] = {
    {1, 2, false},      {2, 4, false}, {7, 4, false}, {127, 8, false}, {100, 8, false},
    {32767, 16, false}, {1, 2, true},  {3, 4, true},  {7, 4, true},    {30, 8, true}};

class DitherKernel : public ::testing::TestWithParam<const DitherKernels*> {
 protected:
  float Draw() {
    switch (random_() % 16) {
      case 0:
        return random_() % 2 == 0 ? 0.0F : -0.0F;
      case 1:
        return std::bit_cast<float>(static_cast<uint32_t>(random_() % 8));  // subnormal
      case 2:
        return std::ldexp(normal_(random_), -static_cast<int>(random_() % 140));
      default:
        return normal_(random_);
    }
  }
  AnyBytes Floats(size_t count, size_t offset) {
    AnyBytes bytes(count * sizeof(float) + offset);
    for (size_t i = 0; i < count; ++i) {
      const float value = Draw();
      std::memcpy(bytes.data() + offset + i * sizeof(float), &value, sizeof(value));
    }
    return bytes;
  }
  std::vector<float> Residual(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = Draw();
    return values;
  }
  DitherRandom Random() {
    DitherRandom random;
    for (uint64_t& word : random.first) word = random_();
    for (uint64_t& word : random.second) word = random_();
    return random;
  }
  std::mt19937_64 random_{17};
  std::normal_distribution<float> normal_;
};

template <typename T>
bool HaveSameBytes(const T& a, const T& b) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [](const auto& left, const auto& right) {
                      return std::memcmp(&left, &right, sizeof(left)) == 0;
                    });
}

TEST_P(DitherKernel, CodesAsTheSpecification) {
  for (const LevelsCase& levels_case : kLevelsCases) {
    for (size_t blocks = 0; blocks < 24; ++blocks) {
      const size_t count = kDitherBlock * blocks;
      const size_t offset = random_() % 9;
      const AnyBytes in = Floats(count, offset);
      std::vector<float> residual = Residual(count);
      std::vector<float> expected = residual;
      const bool keeps = blocks % 4 != 0;
      const float ratio = blocks % 3 == 0 ? 1.0F : 0.3F;
      const DitherInput ours{in.data() + offset, keeps ? residual.data() : nullptr, ratio};
      const DitherInput input{in.data() + offset, keeps ? expected.data() : nullptr, ratio};
      const uint32_t largest = ScalarDithering().largest(input, blocks);
      EXPECT_EQ(GetParam()->largest(ours, blocks), largest);
      const DitherLevels levels = {
          .norm = std::bit_cast<float>(largest) * (blocks % 5 == 0 ? 2 : 1),
          .count = levels_case.count,
          .width = levels_case.width,
          .is_natural = levels_case.is_natural};
      DitherRandom random = Random();
      DitherRandom expected_random = random;
      AnyBytes codes(offset + 2 * blocks * levels.width + 1, 0xee);
      AnyBytes expected_codes = codes;
      GetParam()->code(ours, levels, blocks, &random, codes.data() + offset);
      ScalarDithering().code(input, levels, blocks, &expected_random,
                             expected_codes.data() + offset);
      EXPECT_EQ(codes, expected_codes) << levels.count << " levels, " << blocks << " blocks";
      EXPECT_TRUE(HaveSameBytes(residual, expected));
      EXPECT_TRUE(HaveSameBytes(random.first, expected_random.first));
      EXPECT_TRUE(HaveSameBytes(random.second, expected_random.second));
    }
  }
}

// Nothing may be divided by a norm of 0, nor multiplied by the reciprocal of the least one.
TEST_P(DitherKernel, BucketsOfTheLeastNormsAreCodedExactly) {
  constexpr size_t kBlocks = 5;
  constexpr size_t kCount = kDitherBlock * kBlocks;
  for (const LevelsCase& levels_case : kLevelsCases) {
    for (const float norm : {0.0F, 0x1p-149F}) {
      std::vector<float> elements(kCount, norm);
      const float choice[] = {0.0F, -0.0F, norm, -norm};
      for (size_t i = 1; i < kCount; ++i) elements[i] = choice[random_() % std::size(choice)];
      const auto* const in = reinterpret_cast<const unsigned char*>(elements.data());
      const DitherLevels levels = {.norm = norm,
                                   .count = levels_case.count,
                                   .width = levels_case.width,
                                   .is_natural = levels_case.is_natural};
      const DitherRandom first_random = Random();
      for (const bool keeps : {false, true}) {
        SCOPED_TRACE(std::to_string(levels.count) + " levels of a norm of " +
                     (norm > 0 ? "2^-149" : "0") + (keeps ? ", with a residual" : ""));
        std::vector<float> residual(kCount);
        std::vector<float> expected_residual = residual;
        const DitherInput ours{in, keeps ? residual.data() : nullptr, 1};
        const DitherInput input{in, keeps ? expected_residual.data() : nullptr, 1};
        EXPECT_EQ(GetParam()->largest(ours, kBlocks), std::bit_cast<uint32_t>(norm));
        DitherRandom random = first_random;
        DitherRandom expected_random = first_random;
        AnyBytes codes(2 * kBlocks * levels.width, 0xee);
        AnyBytes expected_codes = codes;
        GetParam()->code(ours, levels, kBlocks, &random, codes.data());
        ScalarDithering().code(input, levels, kBlocks, &expected_random, expected_codes.data());
        EXPECT_EQ(codes, expected_codes);
        EXPECT_TRUE(HaveSameBytes(residual, expected_residual));
        EXPECT_EQ(residual, std::vector<float>(kCount));
        EXPECT_EQ(codes == AnyBytes(codes.size()), norm == 0) << "zeros";
        std::vector<float> values(kCount, 9);
        GetParam()->put(codes.data(), levels, kBlocks,
                        reinterpret_cast<unsigned char*>(values.data()));
        EXPECT_EQ(values, elements);
      }
    }
  }
}

TEST_P(DitherKernel, AddsSquaresAsTheSpecification) {
  for (size_t blocks = 0; blocks < 20; ++blocks) {
    const size_t offset = random_() % 9;
    const AnyBytes in = Floats(kDitherBlock * blocks, offset);
    std::vector<float> residual = Residual(kDitherBlock * blocks);
    for (float* const kept : {residual.data(), static_cast<float*>(nullptr)}) {
      const DitherInput input{in.data() + offset, kept, 0.3F};
      std::vector<double> lanes(8, 0.25);
      std::vector<double> expected = lanes;
      GetParam()->add_squares(input, blocks, lanes.data());
      ScalarDithering().add_squares(input, blocks, expected.data());
      EXPECT_EQ(lanes, expected);
    }
  }
}

TEST_P(DitherKernel, InfinityAndNanAreTheLargest) {
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t at = 0; at < 2 * kDitherBlock; ++at) {
      std::array<float, 2 * kDitherBlock> values;
      values.fill(std::numeric_limits<float>::max());
      values[at] = wrong;
      const DitherInput input{reinterpret_cast<const unsigned char*>(values.data()), nullptr, 1};
      EXPECT_GE(GetParam()->largest(input, 2), 0x7f800000U) << wrong << " at " << at;
    }
  }
}

TEST_P(DitherKernel, PutsAndAddsAsTheSpecification) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const LevelsCase& levels_case : kLevelsCases) {
    for (size_t blocks = 0; blocks < 24; ++blocks) {
      const size_t offset = random_() % 9;
      AnyBytes codes(offset + 2 * blocks * levels_case.width);
      for (unsigned char& byte : codes) byte = static_cast<unsigned char>(random_());
      const float norms[] = {0.7F, 0, std::numeric_limits<float>::max(), 0x1p-149F, nan};
      const DitherLevels levels = {.norm = norms[blocks % std::size(norms)],
                                   .count = levels_case.count,
                                   .width = levels_case.width,
                                   .is_natural = levels_case.is_natural};
      AnyBytes target = Floats(kDitherBlock * blocks, offset);
      const std::array<float, 3> not_finite = {nan, INFINITY, -INFINITY};
      if (blocks > 0) std::memcpy(target.data() + offset, not_finite.data(), sizeof(not_finite));
      AnyBytes expected = target;
      GetParam()->add(codes.data() + offset, levels, blocks, target.data() + offset);
      ScalarDithering().add(codes.data() + offset, levels, blocks, expected.data() + offset);
      EXPECT_EQ(target, expected) << levels.count << " levels, " << blocks << " blocks";
      GetParam()->put(codes.data() + offset, levels, blocks, target.data() + offset);
      ScalarDithering().put(codes.data() + offset, levels, blocks, expected.data() + offset);
      EXPECT_EQ(target, expected) << levels.count << " levels, " << blocks << " blocks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Available, DitherKernel,
                         ::testing::ValuesIn(AvailableDithering().begin(),
                                             AvailableDithering().end()),
                         [](const auto& kernel) { return std::string(kernel.param->name); });

TEST(DitherKernels, FitTheCpuThatSumsRunOn) {
  EXPECT_EQ(AvailableDithering().back()->name, reduce::BestCasts().name);
}

}  // namespace
}  // namespace bs::codec
