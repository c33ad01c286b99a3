// The table of codecs, and the row of each.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "codec/bf16.h"
#include "codec/steps_codec.h"
#include "codec/two_bit.h"

namespace bs::codec {
namespace {

TEST(Codecs, AreFoundByTheirNumbersOnTheWire) {
  ASSERT_NE(Builtin().Find(1), nullptr);
  EXPECT_EQ(Builtin().Find(1)->name, "2bit");
  EXPECT_EQ(Builtin().Find(0), nullptr) << "plain is no codec";
  ASSERT_NE(Builtin().Find(2), nullptr);
  EXPECT_EQ(Builtin().Find(2)->name, "fp16");
  ASSERT_NE(Builtin().Find(3), nullptr);
  EXPECT_EQ(Builtin().Find(3)->name, "bf16");
  ASSERT_NE(Builtin().Find(4), nullptr);
  EXPECT_EQ(Builtin().Find(4)->name, "onebit");
  ASSERT_NE(Builtin().Find(5), nullptr);
  EXPECT_EQ(Builtin().Find(5)->name, "topk");
  ASSERT_NE(Builtin().Find(6), nullptr);
  EXPECT_EQ(Builtin().Find(6)->name, "dithering");
  ASSERT_NE(Builtin().Find(7), nullptr);
  EXPECT_EQ(Builtin().Find(7)->name, "randomk");
  ASSERT_NE(Builtin().Find(8), nullptr);
  EXPECT_EQ(Builtin().Find(8)->name, "int8");
  EXPECT_EQ(Builtin().Find(9), nullptr);
}

TEST(Codecs, NothingCompressedIsAsItLies) {
  EXPECT_TRUE(Builtin().Check({}).ok());
  EXPECT_EQ(Builtin().SentBytes({}, 1234), 1234U);
  EXPECT_EQ(Builtin().Describe({}), "not compressed");
}

TEST(Codecs, CreditCountsCodesAndAnEighthOfTheGradientAtLeast) {
  constexpr uint64_t kBytes = 65536 * sizeof(float);
  EXPECT_EQ(Builtin().CreditBytes({}, 1234), 1234U) << "as it lies";
  EXPECT_EQ(Builtin().CreditBytes(Bf16Coding(), kBytes), kBytes / 2) << "codes";
  Coding two_bits = TwoBitCoding(0.5F);
  EXPECT_EQ(Builtin().CreditBytes(two_bits, kBytes), kBytes / 8) << "codes have a sixteenth";
  EXPECT_EQ(Builtin().CreditBytes(two_bits, 4), 4U) << "the least codes have a word";
  two_bits.later = true;
  EXPECT_EQ(Builtin().CreditBytes(two_bits, kBytes), kBytes) << "this round is plain";
}

TEST(Codecs, HostsAddUpPlainGradientsAndKeysThatAreCut) {
  EXPECT_TRUE(Builtin().AddsUpOnHosts({}));
  EXPECT_TRUE(Builtin().AddsUpOnHosts(Bf16Coding()));
  Coding two_bits = TwoBitCoding(0.5F);
  EXPECT_FALSE(Builtin().AddsUpOnHosts(two_bits));
  two_bits.later = true;
  EXPECT_TRUE(Builtin().AddsUpOnHosts(two_bits)) << "this round is plain";
}

TEST(Codecs, AnUnknownCodecIsRefusedAndNamed) {
  const Coding unknown{.codec = 9};
  EXPECT_EQ(Builtin().Check(unknown).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Builtin().Check(unknown).message().find("codec=9"), std::string::npos);
  EXPECT_EQ(Builtin().Describe(unknown), "compressed by codec 9");
}

TEST(CodecsDeathTest, TwoOfOneNumberOrNameAreAMistake) {
  EXPECT_DEATH(Table({TwoBitCodec(), TwoBitCodec()}), "");
  Codec of_other_number = TwoBitCodec();
  of_other_number.id = 2;
  EXPECT_DEATH(Table({TwoBitCodec(), of_other_number}), "");
}

TEST(CodecsDeathTest, ARowIsComplete) {
  Codec codec = TwoBitCodec();
  codec.decode = nullptr;
  EXPECT_DEATH(Table({codec}), "");
}

Result<Coding> Parse(const Table& table, std::string_view type,
                     const std::vector<Option>& options) {
  return table.Parse(&type, options);
}

TEST(Codecs, AreFoundByTheNamesThatUsersGive) {
  const Table table({TwoBitCodec(), testing::StepsCodec()});
  EXPECT_EQ(Parse(table, "2bit", {{"threshold", "0.25"}}).value(), TwoBitCoding(0.25F));
  EXPECT_EQ(Parse(table, "steps", {{"step", "0.25"}}).value(), testing::StepsCoding(0.25));
}

TEST(Codecs, AnUnknownTypeIsRefusedWithTheKnownTypes) {
  const Table table({TwoBitCodec(), testing::StepsCodec()});
  EXPECT_SNAPSHOT(Parse(table, "1bit", {}).status().message(),
                  "Unknown type for gradient compression '1bit': want '2bit' or 'steps'");
  EXPECT_SNAPSHOT(table.Parse(nullptr, {}).status().message(),
                  "gradient compression needs a type: {'type': '2bit'} or {'type': 'steps'}");
  EXPECT_EQ(Parse(Builtin(), "", {}).status().code(), StatusCode::kInvalidArgument);
}

Coding Good(std::string_view type, const std::vector<Option>& options) {
  return Parse(Builtin(), type, options).value();
}

TEST(Codecs, SumsTravelAsTheirGradientsUnlessTheUserSaysOtherwise) {
  EXPECT_EQ(Good("bf16", {}), (Coding{.codec = 3, .sums = SumsTravel::kSame}));
  EXPECT_EQ(Good("fp16", {{"pull", "plain"}}), (Coding{.codec = 2}));
  EXPECT_EQ(Good("2bit", {{"pull", "bf16"}}).sums, SumsTravel::kBf16);
  EXPECT_EQ(Good("2bit", {}).sums, SumsTravel::kPlain);
  EXPECT_EQ(Builtin().OfSums(Good("fp16", {})), (Coding{.codec = 2}));
  EXPECT_EQ(Builtin().OfSums(Good("2bit", {{"pull", "bf16"}})), (Coding{.codec = 3}));
  EXPECT_EQ(Builtin().OfSums(Good("fp16", {{"pull", "plain"}})), Coding{});
  Coding later = Good("fp16", {});
  later.later = true;
  EXPECT_EQ(Builtin().OfSums(later), Coding{});
  EXPECT_EQ(Builtin().SentBytes(later, 4000), 4000U);
}

TEST(Codecs, SumsOfTwoBitsTravelInTheirThreshold) {
  const Coding coding = Good("2bit", {{"pull", "same"}, {"threshold", "2"}});
  EXPECT_EQ(Builtin().OfSums(coding), TwoBitCoding(2));
  EXPECT_TRUE(Builtin().KeepsResidual(Builtin().OfSums(coding)));
  EXPECT_EQ(Builtin().Describe(coding), "compressed to two bits with threshold 2, pull same");
}

TEST(Codecs, AWrongWayOfSumsIsRefusedWithAllThatAreRight) {
  EXPECT_SNAPSHOT(Parse(Builtin(), "bf16", {{"pull", "half"}}).status().message(),
                  "pull 'half' of gradient compression: want 'same', 'plain' or 'bf16'");
  Codec without = TwoBitCodec();
  without.codes_sums = false;
  EXPECT_SNAPSHOT(
      Parse(Table({without, Bf16Codec()}), "2bit", {{"pull", "same"}}).status().message(),
      "pull 'same' of gradient compression: sums cannot be '2bit', only 'plain' or 'bf16'");
  EXPECT_SNAPSHOT(Parse(Builtin(), "bf16", {{"ef", "vanilla"}}).status().message(),
                  "gradient compression by 'bf16' has no option 'ef' ('vanilla'), only 'pull'");
  Coding wrong{.codec = 3, .sums = static_cast<SumsTravel>(9)};
  EXPECT_EQ(Builtin().Check(wrong).code(), StatusCode::kInvalidArgument);
  const Table alone({TwoBitCodec()});
  EXPECT_FALSE(alone.Check({.codec = 1, .sums = SumsTravel::kBf16}).ok());
}

TEST(Codecs, ADescriptionTellsHowSumsTravelWhereThatIsUnusual) {
  EXPECT_EQ(Builtin().Describe(Good("bf16", {})), "compressed to bf16");
  EXPECT_EQ(Builtin().Describe(Good("bf16", {{"pull", "plain"}})),
            "compressed to bf16, pull plain");
  Coding later = Good("2bit", {{"pull", "bf16"}});
  later.later = true;
  EXPECT_EQ(Builtin().Describe(later),
            "compressed to two bits with threshold 0.5, pull bf16 from the next round on");
}

TEST(Codecs, PartitionsHaveTheWholeUnitsThatTheirSettingHolds) {
  constexpr uint64_t kUnit = 65536 * sizeof(float);
  for (const std::string_view name : {"bf16", "fp16", "onebit", "int8"}) {
    for (const auto& [most_bytes, units] : std::vector<std::pair<uint64_t, uint64_t>>{
             {1, 1}, {kUnit, 1}, {2 * kUnit - 1, 1}, {2 * kUnit, 2}, {1 << 30, 4096}}) {
      EXPECT_EQ(Builtin().PartitionBytes(Good(name, {}), most_bytes), units * kUnit) << name;
    }
  }
}

// "" if the options are refused.
std::string Threshold(const std::string& text) {
  const Result<Coding> coding = Parse(Builtin(), "2bit", {{"threshold", text}});
  return coding.ok() ? Builtin().Describe(coding.value()).substr(38) : "";
}

TEST(TwoBit, AThresholdIsReadAsPythonReadsIt) {
  EXPECT_EQ(Parse(Builtin(), "2bit", {}).value(), TwoBitCoding(0.5F));
  for (const auto& [text, want] : std::vector<std::pair<std::string, std::string>>{
           {"0.1", "0.1"},
           {"2", "2"},
           {"1e-3", "0.001"},
           {".5", "0.5"},
           {"5.", "5"},
           {" +0.5\n", "0.5"},
           {"3.4028234e38", "3.4028235e+38"},
       }) {
    EXPECT_EQ(Threshold(text), want) << text;
  }
  for (const char* const text : {"", " ", "+", "+-1", "-1", "0", "0x1", "1 2", "many", "nan", "inf",
                                 "1e-50", "1e39", "1e60", "1e999"}) {
    EXPECT_EQ(Threshold(text), "") << text;
  }
}

TEST(TwoBit, AWrongThresholdOrOptionIsNamed) {
  EXPECT_SNAPSHOT(Parse(Builtin(), "2bit", {{"threshold", "-1.5"}}).status().message(),
                  "threshold -1.5 of gradient compression: want a finite number greater than 0");
  EXPECT_SNAPSHOT(Parse(Builtin(), "2bit", {{"threshold", "many"}}).status().message(),
                  "threshold 'many' of gradient compression: want a finite number greater than 0");
  EXPECT_SNAPSHOT(
      Parse(Builtin(), "2bit", {{"threshold", "1"}, {"treshold", "1"}}).status().message(),
      "gradient compression has no option 'treshold', only 'type', 'threshold' and 'pull'");
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
TEST(TwoBit, CodesAreDecodedAndAddedAndTheResidualLacksThem) {
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
