// What bf16 and fp16 have alike: exact sums of codes, and how keys are cut.
#include "codec/halves.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <string>
#include <vector>

#include "base/flush_to_zero.h"
#include "codec/bf16.h"
#include "codec/fp16.h"

namespace bs::codec {
namespace {

class Halves : public ::testing::TestWithParam<Codec (*)()> {
 protected:
  const Codec codec_ = GetParam()();
};

TEST_P(Halves, CodesAreAddedToFloat32AndDecodedExactly) {
  const std::vector<float> values = {0.5F, -3, 1024};
  std::vector<uint16_t> codes(3);
  codec_.encode({}, {}, values.data(), nullptr, codes.data(), 3);
  std::vector<float> sum = {1, 1, 1.0F / 1024};
  codec_.add({}, {}, codes.data(), sum.data(), 3);
  EXPECT_EQ(sum, (std::vector<float>{1.5F, -2, 1024 + 1.0F / 1024}));
  codec_.decode({}, {}, codes.data(), sum.data(), 3);
  EXPECT_EQ(sum, values);
}

TEST_P(Halves, RoundToNearestEvenWhateverTheThreadIsSetTo) {
  const std::vector<float> values = {1 + 0x1p-20F, 0x1p-14F};
  std::vector<uint16_t> codes(2);
  std::vector<float> sum = {1, 0x1p20F};
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  codec_.encode({}, {}, values.data(), nullptr, codes.data(), 2);
  codec_.add({}, {}, codes.data(), sum.data(), 2);
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's";
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(sum, (std::vector<float>{2, 0x1p20F}));
}

#ifdef __SSE2__
TEST_P(Halves, KeepSubnormalsWhereTheThreadDoesNot) {
  const float least = codec_.name == "bf16" ? 0x1p-133F : 0x1p-24F;
  const std::vector<float> values = {least, 0};
  std::vector<uint16_t> codes = {9, 9};
  std::vector<float> sum = {0, 0x1p-149F};
  std::vector<float> decoded = {9, 9};
  {
    const FlushToZero flush;
    codec_.encode({}, {}, values.data(), nullptr, codes.data(), 2);
    codec_.add({}, {}, codes.data(), sum.data(), 2);
    codec_.decode({}, {}, codes.data(), decoded.data(), 2);
  }
  EXPECT_EQ(codes, (std::vector<uint16_t>{1, 0}));
  EXPECT_EQ(sum, (std::vector<float>{least, 0x1p-149F}));
  EXPECT_EQ(decoded, values);
}
#endif

TEST_P(Halves, TwoBytesAnElementInUnitsOf65536) {
  for (const uint64_t count : {0U, 1U, 65535U, 65536U, 65537U}) {
    EXPECT_EQ(codec_.encoded_bytes({}, count), 2 * count);
  }
  EXPECT_EQ(codec_.unit_elements, 65536U);
  EXPECT_TRUE(codec_.cuts_keys && codec_.codes_sums);
  EXPECT_EQ(codec_.keeps, Keeps::kNoResidual);
}

INSTANTIATE_TEST_SUITE_P(Both, Halves, ::testing::Values(&Bf16Codec, &Fp16Codec),
                         [](const auto& both) { return std::string(both.param().name); });

}  // namespace
}  // namespace bs::codec
