// U1: codes, residuals and values of topk and randomk are those of the model in numpy.  Their
// parameters, and codes of any bytes.
#include "codec/picks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/flush_to_zero.h"
#include "base/snapshot.h"
#include "codec/goldens/pick_goldens.h"
#include "codec/pick_coder.h"

namespace bs::codec {
namespace {

using testing::BitsOfFloats;
using testing::ParsePicking;
using testing::PickCoder;
using testing::PickGolden;

uint64_t Mixed(uint64_t x) {
  x *= 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27U) * 0x94d049bb133111eb;
  return x ^ x >> 31U;
}

float NumberOf(int pattern, uint64_t x) {
  const auto low = static_cast<uint32_t>(x);
  int64_t fields = -131070;
  for (const unsigned at : {0U, 16U, 32U, 48U}) fields += static_cast<int64_t>(x >> at & 0xffffU);
  const float usual = static_cast<float>(fields) / 16384;
  switch (pattern) {
    case 1:
      return std::bit_cast<float>(low & 0x80000000U);
    case 2:
      return std::bit_cast<float>(low & 0x807fffffU);
    case 3:
      return std::bit_cast<float>((low & 0x80000000U) | 0x40000000U);
    case 6:
      return std::nearbyint(usual);
    case 7:
      return std::bit_cast<float>(low & 0xff7fffffU);
    default:
      return usual;
  }
}

// As numbers() of tests/python/compression/pick_goldens.py.
std::vector<float> NumbersOf(int pattern, size_t count, uint64_t seed) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = NumberOf(pattern, Mixed(i + (seed << 32U)));
  if (pattern == 4) numbers[count / 2] = std::numeric_limits<float>::infinity();
  if (pattern == 5) numbers[count - 1] = std::numeric_limits<float>::quiet_NaN();
  return numbers;
}

constexpr std::array<uint32_t, 256> MakeCrcs() {
  std::array<uint32_t, 256> crcs{};
  for (uint32_t byte = 0; byte < crcs.size(); ++byte) {
    crcs[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crcs[byte] = crcs[byte] >> 1U ^ (crcs[byte] % 2 == 1 ? 0xedb88320U : 0U);
    }
  }
  return crcs;
}
constexpr std::array<uint32_t, 256> kCrcs = MakeCrcs();

uint32_t Crc32(const void* data, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (const unsigned char byte : std::span(static_cast<const unsigned char*>(data), size)) {
    crc = crc >> 8U ^ kCrcs[(crc ^ byte) & 0xffU];
  }
  return ~crc;
}

PickCoder CoderOfGolden(const PickGolden& golden) {
  std::vector<Option> options = {{"k", golden.k}, {"fp16", golden.fp16}};
  if (std::string_view(golden.codec) == "randomk") options.push_back({"seed", "11"});
  if (golden.ratio != 0) options.push_back({"ef", "vanilla"});
  PickCoder coder(golden.codec, options, golden.count);
  coder.place = {.key = 7,
                 .round = 3,
                 .first_element = 2 * 65536,
                 .ratio = golden.ratio,
                 .rank = golden.of_sum ? kServerRank : 1,
                 .num_workers = golden.of_sum ? 3U : 1U};
  return coder;
}

TEST(Picks, CodesResidualsAndValuesAreTheModels) {
  for (const PickGolden& golden : testing::kPickGoldens) {
    SCOPED_TRACE(std::string(golden.codec) + " fp16 " + golden.fp16 + " pattern " +
                 std::to_string(golden.pattern) + " of " + std::to_string(golden.count));
    PickCoder coder = CoderOfGolden(golden);
    if (golden.ratio != 0) coder.residual = NumbersOf(0, golden.count, 5);
    const std::vector<float> in = NumbersOf(golden.pattern, golden.count, 3);
    const std::vector<std::byte> codes = coder.Encode(in);
    EXPECT_EQ(Crc32(codes.data(), codes.size()), golden.codes);
    EXPECT_TRUE(coder.Check(codes, in.size()).ok());
    coder.residual.resize(in.size());
    EXPECT_EQ(Crc32(coder.residual.data(), 4 * in.size()), golden.residual);
    const std::vector<float> values = coder.Decode(codes, in.size());
    EXPECT_EQ(Crc32(values.data(), 4 * in.size()), golden.values);
    std::vector<float> sum(in.size(), 0.5F);
    for (size_t i = 0; i < in.size(); ++i) sum[i] += values[i];
    const std::vector<float> added = coder.Add(codes, std::vector<float>(in.size(), 0.5F));
    EXPECT_EQ(BitsOfFloats(added), BitsOfFloats(sum));
  }
}

// The codes of `in`, the residual behind them, their values, and `sum` with these added.
using CodedPicks = std::tuple<std::vector<std::byte>, std::vector<uint32_t>, std::vector<uint32_t>,
                              std::vector<uint32_t>>;
CodedPicks CodePicks(PickCoder coder, const std::vector<float>& in, const std::vector<float>& sum) {
  const std::vector<std::byte> codes = coder.Encode(in);
  const std::vector<float> values = coder.Decode(codes, in.size());
  return {codes, BitsOfFloats(coder.residual), BitsOfFloats(values),
          BitsOfFloats(coder.Add(codes, sum))};
}

// A coder for each set of options; those with `ef` have `residual`.
std::vector<PickCoder> CodersOf(const char* k, const std::vector<float>& residual) {
  std::vector<PickCoder> coders;
  for (const char* const name : {"topk", "randomk"}) {
    for (const char* const fp16 : {"False", "True"}) {
      coders.emplace_back(name, std::vector<Option>{{"k", k}, {"fp16", fp16}}, 0);
      coders.emplace_back(name, std::vector<Option>{{"k", k}, {"fp16", fp16}, {"ef", "vanilla"}},
                          residual.size());
      coders.back().residual = residual;
      coders.back().place.ratio = 0.3F;
    }
  }
  return coders;
}

TEST(Picks, BitsDoNotDependOnTheThreadsRounding) {
  const std::vector<float> in = NumbersOf(0, 1000, 3);
  const std::vector<float> sum = NumbersOf(0, 1000, 4);
  for (const PickCoder& coder : CodersOf("0.3", NumbersOf(0, 1000, 5))) {
    const CodedPicks expected = CodePicks(coder, in, sum);
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      ASSERT_EQ(std::fesetround(rounding), 0);
      const CodedPicks coded = CodePicks(coder, in, sum);
      EXPECT_EQ(std::fegetround(), rounding) << "the caller's";
      ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
      EXPECT_EQ(coded, expected) << Builtin().Describe(coder.coding) << ", rounding " << rounding;
    }
  }
}

#ifdef __SSE2__
TEST(Picks, KeepSubnormalsWhereTheThreadDoesNot) {
  // Subnormals of float32, and of float16.
  const std::vector<float> in = {0x7p-149F, -0x3p-149F, 0x3p-24F, -0x1p-24F};
  const std::vector<float> residual = {0x30p-149F, 0x30p-149F, 0, 0x30p-149F};
  const std::vector<float> sum(4, 0x1p-149F);
  for (const char* const k : {"1/4", "2/4", "4/4"}) {
    for (const PickCoder& coder : CodersOf(k, residual)) {
      const CodedPicks expected = CodePicks(coder, in, sum);
      const CodedPicks coded = [&] {
        const FlushToZero flush;
        return CodePicks(coder, in, sum);
      }();
      EXPECT_EQ(coded, expected) << Builtin().Describe(coder.coding);
    }
  }
  const PickCoder exact("topk", {{"k", "4/4"}}, 0);
  EXPECT_EQ(std::get<2>(CodePicks(exact, in, sum)), BitsOfFloats(in));
}
#endif

TEST(Picks, AResidualThatItsFactorMakesInfiniteCostsOneRound) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "0.5"}, {"ef", "vanilla"}}, 2);
    coder.residual = {1e30F, 1};
    coder.place.ratio = 1e20F;
    EXPECT_TRUE(std::isnan(coder.Decode(coder.Encode({1, 1}), 2)[0]));
    EXPECT_EQ(coder.residual, (std::vector<float>{0, 1e20F}));
    coder.place.ratio = 1;
    EXPECT_FALSE(std::isnan(coder.Decode(coder.Encode({1, 1}), 2)[0]));
  }
}

const std::vector<float> kBeyondHalves = {70016, 1, -300000, -65504};

TEST(Picks, TheRestOfAValueThatAHalfCannotHoldComesLater) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "4/4"}, {"fp16", "True"}, {"ef", "vanilla"}}, 4);
    std::vector<float> come(4);
    come = coder.Add(coder.Encode(kBeyondHalves), come);
    EXPECT_EQ(come, (std::vector<float>{65504, 1, -65504, -65504})) << name;
    EXPECT_EQ(coder.residual, (std::vector<float>{4512, 0, -234496, 0})) << name;
    for (int round = 0; round < 4; ++round) come = coder.Add(coder.Encode({0, 0, 0, 0}), come);
    EXPECT_EQ(come, kBeyondHalves) << name;
    EXPECT_EQ(coder.residual, std::vector<float>(4)) << name;
    // A sum of three workers is divided by four.
    coder.place = {.rank = kServerRank, .num_workers = 3};
    come = coder.Decode(coder.Encode(kBeyondHalves), 4);
    EXPECT_EQ(come, (std::vector<float>{70016, 1, -262016, -65504})) << name;
    EXPECT_EQ(coder.residual[2], -37984) << name;
  }
}

TEST(Picks, AValueThatAHalfCannotHoldIsCutWithoutAResidual) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "4/4"}, {"fp16", "True"}}, 4);
    EXPECT_EQ(coder.Decode(coder.Encode(kBeyondHalves), 4),
              (std::vector<float>{65504, 1, -65504, -65504}))
        << name;
  }
}

// E3: 64 workers of 2,000 each.
TEST(Picks, ASumInHalvesIsDividedSoThatItFits) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "0.99"}, {"fp16", "True"}}, 0);
    coder.place = {.rank = kServerRank, .num_workers = 64};
    const std::vector<float> sums =
        coder.Decode(coder.Encode(std::vector<float>(100, 128000)), 100);
    EXPECT_EQ(*std::max_element(sums.begin(), sums.end()), 128000) << name;
  }
}

TEST(Picks, ASumOfAHostInHalvesIsDividedToo) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "4/4"}, {"fp16", "True"}, {"ef", "vanilla"}}, 4);
    coder.place = {.rank = 2, .num_workers = 8};
    const std::vector<float> sum = {128000, 1, -300032, 0};
    EXPECT_EQ(coder.Add(coder.Encode(sum), std::vector<float>(4)), sum) << name;
    EXPECT_EQ(coder.residual, std::vector<float>(4)) << name;
  }
}

TEST(Picks, AValueThatItsFactorMakesInfiniteIsTheLargest) {
  PickCoder coder("randomk", {{"k", "2/4"}}, 0);
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<float> values = coder.Decode(coder.Encode(std::vector<float>(4, -kMost)), 4);
  EXPECT_EQ(std::count(values.begin(), values.end(), -kMost), 2);
}

// What passes the check stays in bounds; the sanitizers look.
TEST(Picks, AnyBytesAreRefusedOrDecoded) {
  std::mt19937 random(11);
  size_t passed = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const char* const name = trial % 2 == 0 ? "topk" : "randomk";
    const char* const fp16 = trial % 4 < 2 ? "True" : "False";
    PickCoder coder(name, {{"k", "0.1"}, {"fp16", fp16}}, 0);
    const size_t count = 1 + random() % 40;
    std::vector<std::byte> codes = coder.Encode(std::vector<float>(count, 3));
    for (size_t change = random() % 3; change > 0; --change) {
      codes[random() % codes.size()] = std::byte{static_cast<uint8_t>(random())};
    }
    if (!coder.Check(codes, count).ok()) continue;
    ++passed;
    const std::vector<float> values = coder.Decode(codes, count);
    EXPECT_TRUE(std::isnan(values[0]) == std::isnan(values.back()));
    coder.Add(codes, values);
  }
  EXPECT_GT(passed, 1000U);
  EXPECT_LT(passed, 4000U);
}

TEST(Picks, CodesOfNoElementsAreEmpty) {
  for (const char* const name : {"topk", "randomk"}) {
    PickCoder coder(name, {{"k", "0.1"}}, 0);
    EXPECT_TRUE(coder.Encode({}).empty());
    EXPECT_TRUE(coder.Check({}, 0).ok());
  }
}

uint64_t PicksFor(const char* k, uint64_t count) {
  return PicksOf(ParsePicking("topk", {{"k", k}}).value().parameters).Of(count);
}

TEST(Picks, ShareIsRoundedUpAndPicksAreRoundedDownAndOneAtLeast) {
  EXPECT_EQ(PicksFor("0.01", 65536), 655U);
  EXPECT_EQ(PicksFor("0.5", 9), 4U);
  EXPECT_EQ(PicksFor("0.01", 3), 1U);
  EXPECT_EQ(PicksFor("1/3", 3), 1U) << "ceil of 2^32 / 3";
  EXPECT_EQ(PicksFor("2/3", 3), 2U);
  EXPECT_EQ(PicksFor("20/65536", 65536), 20U);
  EXPECT_EQ(PicksFor("20/1024000", 65536), 1U);
  EXPECT_EQ(PicksFor("9/4", 4), 4U);
  EXPECT_EQ(PicksFor("4294967295/4294967295", 65536), 65536U);
  EXPECT_EQ(PicksOf({}).Of(5), 1U) << "any parameters";
}

TEST(Picks, DescriptionsTellEachOption) {
  const auto describe = [](const char* name, const std::vector<Option>& options) {
    return Builtin().Describe(ParsePicking(name, options).value());
  };
  EXPECT_EQ(describe("topk", {{"k", "0.01"}}), "compressed to topk with k 0.01");
  EXPECT_EQ(describe("topk", {{"k", "20/65536"}, {"fp16", "True"}, {"ef", "corrected"}}),
            "compressed to topk with k 20, half values, ef corrected");
  EXPECT_EQ(describe("randomk", {{"k", "0.001"}, {"seed", "7"}, {"ef", "sparse"}}),
            "compressed to randomk with k 0.001, seed 7, ef sparse");
  EXPECT_EQ(describe("topk", {{"k", "0.1234567"}}), "compressed to topk with k 0.1234567");
  EXPECT_EQ(describe("topk", {{"k", "0.1234568"}}), "compressed to topk with k 0.1234568");
}

std::string Refusal(const char* name, const std::vector<Option>& options) {
  return ParsePicking(name, options).status().message();
}

TEST(Picks, WrongOptionsAreNamedWithTheRightValues) {
  EXPECT_SNAPSHOT(
      Refusal("topk", {}),
      "gradient compression by 'topk' needs k, such as 0.01: which part of the elements "
      "travels");
  for (const char* const k : {"0", "1", "-0.5", "nan", "1e-400", "many", "", "0.1 ", "20", "0/5",
                              "5/0", "1/", "/2", "-1/2", "1/2/3", "4294967296/5"}) {
    EXPECT_FALSE(ParsePicking("topk", {{"k", k}}).ok()) << k;
  }
  EXPECT_SNAPSHOT(Refusal("topk", {{"k", "20"}}),
                  "k '20' of gradient compression: want a fraction between 0 and 1, such as 0.01, "
                  "or how many of a tensor's elements, such as 20/65536");
  EXPECT_SNAPSHOT(Refusal("randomk", {{"k", "0.1"}, {"fp16", "yes"}}),
                  "fp16 'yes' of gradient compression: want True or False");
  EXPECT_SNAPSHOT(Refusal("randomk", {{"k", "0.1"}, {"seed", "0"}}),
                  "seed '0' of gradient compression: want a whole number from 1 to 2^64 - 1");
  EXPECT_FALSE(ParsePicking("randomk", {{"k", "0.1"}, {"seed", "-1"}}).ok());
  EXPECT_TRUE(ParsePicking("randomk", {{"k", "0.1"}, {"seed", "18446744073709551615"}}).ok());
  EXPECT_SNAPSHOT(Refusal("topk", {{"k", "0.1"}, {"seed", "5"}}),
                  "gradient compression by 'topk' has no option 'seed' ('5'), only 'k', 'fp16', "
                  "'ef' and 'pull'");
  EXPECT_SNAPSHOT(Refusal("randomk", {{"k", "0.1"}, {"scaling", "True"}}),
                  "gradient compression by 'randomk' has no option 'scaling' ('True'), only 'k', "
                  "'fp16', 'seed', 'ef' and 'pull'");
}

TEST(Picks, SparseFeedbackIsRandomksAlone) {
  const std::vector<Option> options = {{"k", "0.1"}, {"ef", "sparse"}};
  EXPECT_EQ(ParsePicking("randomk", options).value().feedback, Feedback::kSparse);
  EXPECT_SNAPSHOT(Refusal("topk", options),
                  "ef 'sparse' of gradient compression: want 'vanilla' or 'corrected'");
  EXPECT_SNAPSHOT(Refusal("randomk", {{"k", "0.1"}, {"ef", "dense"}}),
                  "ef 'dense' of gradient compression: want 'vanilla', 'corrected' or 'sparse'");
  Coding topk = ParsePicking("topk", {{"k", "0.1"}}).value();
  topk.feedback = Feedback::kSparse;
  EXPECT_FALSE(Builtin().Check(topk).ok());
}

TEST(Picks, AFractionWithCodesThatAreNoSmallerIsRefused) {
  EXPECT_TRUE(ParsePicking("topk", {{"k", "0.6666"}}).ok());
  EXPECT_SNAPSHOT(Refusal("topk", {{"k", "0.67"}}),
                  "k of gradient compression is so large that codes are no smaller than gradients: "
                  "want less than 2/3");
  EXPECT_TRUE(ParsePicking("topk", {{"k", "0.67"}, {"fp16", "True"}}).ok());
  EXPECT_TRUE(ParsePicking("topk", {{"k", "2/3"}}).ok()) << "it depends on the tensor";
  EXPECT_TRUE(ParsePicking("randomk", {{"k", "0.9999"}}).ok());
  EXPECT_FALSE(ParsePicking("randomk", {{"k", "0.9999999999999999"}}).ok());
}

TEST(Picks, ParametersFromTheWireAreChecked) {
  for (const char* const name : {"topk", "randomk"}) {
    const Coding good = ParsePicking(name, {{"k", "0.1"}}).value();
    EXPECT_TRUE(Builtin().Check(good).ok());
    const auto changed = [&](size_t at, uint8_t value) {
      std::vector<std::byte> bytes(good.parameters.bytes().begin(), good.parameters.bytes().end());
      bytes[at] = std::byte{value};
      Coding coding = good;
      coding.parameters = CodecParameters(bytes);
      return Builtin().Check(coding);
    };
    EXPECT_SNAPSHOT(changed(0, 2).message(), "parameters that are not a flag and three numbers");
    EXPECT_FALSE(changed(9, 2).ok()) << "a share above 2^32";
    EXPECT_EQ(changed(13, 1).ok(), std::string(name) == "randomk") << "a seed";
    Coding none = good;
    none.parameters = {};
    EXPECT_FALSE(Builtin().Check(none).ok());
    none.parameters = ParametersOf({.share = 0});
    EXPECT_SNAPSHOT(Builtin().Check(none).message(), "a share of 0 picks: want 1 to 2^32 in 2^32");
  }
}

}  // namespace
}  // namespace bs::codec
