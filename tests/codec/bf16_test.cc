// The row of bf16: golden codes, and a row that says how its keys are cut.
#include "codec/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace bs::codec {
namespace {

std::vector<uint16_t> InBf16(const std::vector<float>& values) {
  std::vector<uint16_t> codes(values.size());
  Bf16Codec().encode({}, {}, values.data(), nullptr, codes.data(), values.size());
  return codes;
}

TEST(Bf16, CodesAreTheNearestEvenBfloat16) {
  EXPECT_EQ(InBf16({1, -2, 1.00390625F, 1.01171875F, INFINITY, 0x1p-133F}),
            (std::vector<uint16_t>{0x3f80, 0xc000, 0x3f80, 0x3f82, 0x7f80, 0x0001}));
  EXPECT_EQ(InBf16({NAN, -0.0F, 3.4e38F}), (std::vector<uint16_t>{0x7fc0, 0x8000, 0x7f80}));
}

TEST(Bf16, CodesAreAddedToFloat32AndDecodedExactly) {
  const Codec codec = Bf16Codec();
  const std::vector<uint16_t> codes = InBf16({0.5F, -3, 1024});
  std::vector<float> sum = {1, 1, 1.0F / 1024};
  codec.add({}, {}, codes.data(), sum.data(), 3);
  EXPECT_EQ(sum, (std::vector<float>{1.5F, -2, 1024 + 1.0F / 1024}));
  codec.decode({}, {}, codes.data(), sum.data(), 3);
  EXPECT_EQ(sum, (std::vector<float>{0.5F, -3, 1024}));
}

TEST(Bf16, TwoBytesAnElementInUnitsOf65536) {
  const Codec codec = Bf16Codec();
  for (const uint64_t count : {0U, 1U, 65535U, 65536U, 65537U}) {
    EXPECT_EQ(codec.encoded_bytes({}, count), 2 * count);
  }
  EXPECT_EQ(codec.unit_elements, 65536U);
  EXPECT_TRUE(codec.cuts_keys && codec.codes_sums && !codec.keeps_residual);
}

}  // namespace
}  // namespace bs::codec
