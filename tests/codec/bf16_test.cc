// The row of bf16: golden codes.
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

}  // namespace
}  // namespace bs::codec
