// U2: the kernels of every CPU make the bits of the specification.
#include "codec/kernels/onebit_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reduce/casts.h"

namespace bs::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kScales[] = {0.7F, std::numeric_limits<float>::max(),
                             std::numeric_limits<float>::denorm_min()};

// Bytes of float32 that begin at any address.
using Unaligned = std::vector<unsigned char>;

class OnebitKernel : public ::testing::TestWithParam<const OnebitKernels*> {
 protected:
  float Draw() {
    switch (random_() % 16) {
      case 0:
        return random_() % 2 == 0 ? 0.0F : -0.0F;
      case 1:
        return std::bit_cast<float>(static_cast<uint32_t>(random_() % 8));  // subnormal
      case 2:
        return std::bit_cast<float>(static_cast<uint32_t>(random_()) & 0xff7fffffU);  // finite
      default:
        return normal_(random_);
    }
  }
  Unaligned Floats(size_t count, size_t offset) {
    Unaligned bytes(count * sizeof(float) + offset);
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
  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
};

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST_P(OnebitKernel, CodesAsTheSpecification) {
  for (size_t eights = 0; eights < 40; ++eights) {
    const size_t offset = random_() % 9;
    const Unaligned in = Floats(8 * eights, offset);
    std::vector<float> residual = Residual(8 * eights);
    std::vector<float> expected = residual;
    for (const bool keeps : {true, false}) {
      const float ratio = eights % 3 == 0 ? 1.0F : 0.3F;
      const float scale = kScales[eights % std::size(kScales)];
      std::vector<double> lanes(8, 0.25);
      std::vector<double> expected_lanes = lanes;
      std::vector<unsigned char> signs(eights + 1, 0xee);
      std::vector<unsigned char> expected_signs = signs;
      const OnebitInput ours{in.data() + offset, keeps ? residual.data() : nullptr, ratio};
      const OnebitInput input{in.data() + offset, keeps ? expected.data() : nullptr, ratio};
      GetParam()->add_magnitudes(ours, eights, lanes.data());
      ScalarOnebit().add_magnitudes(input, eights, expected_lanes.data());
      EXPECT_EQ(lanes, expected_lanes);
      GetParam()->code(ours, eights, scale, signs.data());
      ScalarOnebit().code(input, eights, scale, expected_signs.data());
      EXPECT_EQ(signs, expected_signs) << eights;
      for (size_t i = 0; i < residual.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(residual[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    }
  }
}

TEST_P(OnebitKernel, PutsAndAddsAsTheSpecification) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t eights = 0; eights < 40; ++eights) {
    const size_t offset = random_() % 9;
    std::vector<unsigned char> signs(eights);
    for (unsigned char& byte : signs) byte = static_cast<unsigned char>(random_());
    for (const float scale : {0.7F, 0.0F, kScales[1], kScales[2], nan}) {
      Unaligned target = Floats(8 * eights, offset);
      const std::array<float, 3> not_finite = {nan, kInfinity, -kInfinity};
      if (eights > 0) std::memcpy(target.data() + offset, not_finite.data(), sizeof(not_finite));
      Unaligned expected = target;
      GetParam()->add(signs.data(), scale, eights, target.data() + offset);
      ScalarOnebit().add(signs.data(), scale, eights, expected.data() + offset);
      EXPECT_TRUE(SameBytes(target, expected)) << eights;
      GetParam()->put(signs.data(), scale, eights, target.data() + offset);
      ScalarOnebit().put(signs.data(), scale, eights, expected.data() + offset);
      EXPECT_TRUE(SameBytes(target, expected)) << eights;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Available, OnebitKernel,
                         ::testing::ValuesIn(AvailableOnebit().begin(), AvailableOnebit().end()),
                         [](const auto& kernel) { return std::string(kernel.param->name); });

TEST(OnebitKernels, FitTheCpuThatSumsRunOn) {
  EXPECT_EQ(AvailableOnebit().back()->name, reduce::BestCasts().name);
}

}  // namespace
}  // namespace bs::codec
