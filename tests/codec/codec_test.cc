// The table of codecs, and the row of each.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "codec/two_bit.h"

namespace bs::codec {
namespace {

TEST(Codecs, AreFoundByTheirNumbersOnTheWire) {
  ASSERT_NE(Builtin().Find(1), nullptr);
  EXPECT_EQ(Builtin().Find(1)->name, "two-bit");
  EXPECT_EQ(Builtin().Find(0), nullptr) << "plain is no codec";
  EXPECT_EQ(Builtin().Find(2), nullptr);
}

TEST(Codecs, NothingCompressedIsAsItLies) {
  EXPECT_TRUE(Builtin().Check({}).ok());
  EXPECT_EQ(Builtin().SentBytes({}, 1234), 1234U);
  EXPECT_EQ(Builtin().Describe({}), "not compressed");
}

TEST(Codecs, WhatIsUnknownIsRefusedAndNamed) {
  const Coding unknown{.codec = 9};
  EXPECT_EQ(Builtin().Check(unknown).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Builtin().Check(unknown).message().find("codec=9"), std::string::npos);
  EXPECT_EQ(Builtin().Describe(unknown), "compressed by codec 9");
}

TEST(CodecsDeathTest, TwoOfOneNumberAreAMistake) {
  EXPECT_DEATH(Table({TwoBitCodec(), TwoBitCodec()}), "");
}

TEST(CodecsDeathTest, ARowIsComplete) {
  Codec codec = TwoBitCodec();
  codec.decode = nullptr;
  EXPECT_DEATH(Table({codec}), "");
}

TEST(TwoBit, HasOneParameterThatIsAThreshold) {
  EXPECT_TRUE(Builtin().Check(TwoBitCoding(0.5F)).ok());
  for (const float threshold :
       {-0.5F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(Builtin().Check(TwoBitCoding(threshold)).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Builtin().Check({.codec = 1}).ok()) << "without it";
  const std::vector<std::byte> eight(8);
  EXPECT_FALSE(Builtin().Check({.codec = 1, .parameters = CodecParameters(eight)}).ok());
  EXPECT_TRUE(TwoBitCoding(0).plain());
}

TEST(TwoBit, ADescriptionTellsThresholdsApart) {
  EXPECT_EQ(Builtin().Describe(TwoBitCoding(0.5F)), "compressed to two bits with threshold 0.5");
  EXPECT_NE(Builtin().Describe(TwoBitCoding(1e-20F)),
            Builtin().Describe(TwoBitCoding(1.0000001e-20F)));
}

TEST(TwoBit, SixteenElementsTravelInAWord) {
  for (const uint64_t elements : {0U, 1U, 16U, 17U, 37U}) {
    EXPECT_EQ(Builtin().SentBytes(TwoBitCoding(0.5F), 4 * elements), (elements + 15) / 16 * 4);
  }
}

// The row hands on what two_bit_test tests.
TEST(TwoBit, WhatIsCodedIsDecodedAddedAndMissingInTheResidual) {
  const Coding coding = TwoBitCoding(0.5F);
  const Codec& codec = Builtin().Get(coding);
  const std::vector<float> in = {0.75F, -0.75F, 0.25F};
  std::vector<float> residual(3);
  std::vector<std::byte> codes(codec.encoded_bytes(coding.parameters, 3));
  codec.encode(coding.parameters, {}, in.data(), residual.data(), codes.data(), 3);
  EXPECT_EQ(residual, (std::vector<float>{0.25F, -0.25F, 0.25F}));
  std::vector<float> values(3, 9);
  codec.decode(coding.parameters, {}, codes.data(), values.data(), 3);
  EXPECT_EQ(values, (std::vector<float>{0.5F, -0.5F, 0}));
  codec.add(coding.parameters, {}, codes.data(), values.data(), 3);
  EXPECT_EQ(values, (std::vector<float>{1, -1, 0}));
}

}  // namespace
}  // namespace bs::codec
