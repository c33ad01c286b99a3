// U2: the kernels of every CPU make the bits of the specification.
#include "codec/kernels/picks_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codec/pick_coder.h"
#include "reduce/casts.h"

namespace bs::codec {
namespace {

using testing::BitsOfFloats;

class PickKernel : public ::testing::TestWithParam<const PickKernels*> {
 protected:
  float DrawFinite() {
    switch (random_() % 8) {
      case 0:
        return random_() % 2 == 0 ? 0.0F : -0.0F;
      case 1:
        return std::bit_cast<float>(static_cast<uint32_t>(random_() % 8));  // subnormal
      case 2:
        return std::bit_cast<float>(static_cast<uint32_t>(random_()) & 0xbf7fffffU);
      case 3:
        return random_() % 2 == 0 ? 2.0F : -2.0F;  // equal magnitudes
      default:
        return normal_(random_);
    }
  }
  // `count` elements at any address, and residuals.
  void Draw(size_t count) {
    offset_ = random_() % 9;
    bytes_.assign(count * sizeof(float) + offset_, 0);
    residual_.clear();
    for (size_t i = 0; i < count; ++i) {
      Put(i, DrawFinite());
      residual_.push_back(DrawFinite());
    }
    ratio_ = count % 3 == 0 ? 1.0F : 0.3F;
  }
  void Put(size_t at, float value) {
    std::memcpy(bytes_.data() + offset_ + at * sizeof(float), &value, sizeof(value));
  }
  PickInput Input(std::vector<float>* residual, bool keeps) {
    return {bytes_.data() + offset_, keeps ? residual->data() : nullptr, ratio_};
  }
  std::mt19937 random_{19};
  std::normal_distribution<float> normal_;
  std::vector<unsigned char> bytes_;
  size_t offset_ = 0;
  std::vector<float> residual_;
  float ratio_ = 1;
};

using Indices = std::vector<unsigned char>;

TEST_P(PickKernel, CountsDigitsAsTheSpecification) {
  for (size_t count = 0; count < 200; ++count) {
    Draw(count);
    for (const bool keeps : {true, false}) {
      const PickInput input = Input(&residual_, keeps);
      for (const PickDigit& digit :
           {PickDigit{20, 11, 0}, PickDigit{10, 10, 0x400}, PickDigit{0, 10, 0x400U << 10U}}) {
        std::vector<uint32_t> ours(2048, 1);
        std::vector<uint32_t> expected = ours;
        GetParam()->count_digits(input, count, digit, ours.data());
        ScalarPicks().count_digits(input, count, digit, expected.data());
        EXPECT_EQ(ours, expected) << count;
      }
    }
  }
}

TEST_P(PickKernel, FindsElementsAsTheSpecification) {
  const auto find = [](const PickKernels& kernels, const PickInput& input, const PickRange& range,
                       uint32_t least) {
    std::vector<uint32_t> indices(range.count + kPickSlack);
    std::vector<float> values(range.count + kPickSlack);
    const size_t found = kernels.find(input, range, least, {indices.data(), values.data()});
    EXPECT_LE(found, range.count);
    indices.resize(found);
    values.resize(found);
    return std::pair(indices, BitsOfFloats(values));
  };
  for (size_t count = 0; count < 200; ++count) {
    Draw(count + 5);
    if (count > 3) Put(count, std::numeric_limits<float>::quiet_NaN());
    for (const bool keeps : {true, false}) {
      const PickInput input = Input(&residual_, keeps);
      for (const uint32_t least : {0U, 1U, 0x3f000000U, 0x40000000U, 0x7f800000U}) {
        const PickRange range = {.first = count % 7, .count = count};
        if (range.first + range.count > count + 5) continue;
        EXPECT_EQ(find(*GetParam(), input, range, least), find(ScalarPicks(), input, range, least))
            << count;
      }
    }
  }
}

TEST_P(PickKernel, PicksAndFoldsAsTheSpecification) {
  constexpr uint32_t kTwo = 0x40000000;
  for (size_t count = 0; count < 200; ++count) {
    Draw(count);
    std::vector<float> expected = residual_;
    for (const bool keeps : {true, false}) {
      for (const PickCut& cut : {PickCut{kTwo, 0}, PickCut{kTwo, 5}, PickCut{0, count},
                                 PickCut{0x3f000000, 1}, PickCut{kTwo, count}}) {
        Indices ours(2 * count + 1, 0xee);
        Indices wanted = ours;
        GetParam()->pick(Input(&residual_, keeps), count, cut, ours.data() + 1);
        ScalarPicks().pick(Input(&expected, keeps), count, cut, wanted.data() + 1);
        EXPECT_EQ(ours, wanted) << count;
      }
    }
    GetParam()->fold(Input(&residual_, true), count);
    ScalarPicks().fold(Input(&expected, true), count);
    EXPECT_EQ(BitsOfFloats(residual_), BitsOfFloats(expected)) << count;
  }
}

TEST_P(PickKernel, FindsElementsThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t count = 1; count < 70; ++count) {
    Draw(count);
    EXPECT_TRUE(GetParam()->are_finite(Input(&residual_, false), count));
    const size_t at = random_() % count;
    for (const float wrong : {infinity, -infinity, nan, -nan}) {
      Put(at, wrong);
      EXPECT_FALSE(GetParam()->are_finite(Input(&residual_, false), count)) << count;
    }
    Put(at, 1);
    residual_[at] = infinity;
    EXPECT_FALSE(GetParam()->are_finite(Input(&residual_, true), count)) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Available, PickKernel,
                         ::testing::ValuesIn(AvailablePicks().begin(), AvailablePicks().end()),
                         [](const auto& kernel) { return std::string(kernel.param->name); });

TEST(PickKernels, FitTheCpuThatSumsRunOn) {
  EXPECT_EQ(AvailablePicks().back()->name, reduce::BestCasts().name);
}

}  // namespace
}  // namespace bs::codec
