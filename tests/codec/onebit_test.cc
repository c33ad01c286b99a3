// Signs and magnitudes against a slow reference, residuals, bounds, and codes that lie.
#include "codec/onebit.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/flush_to_zero.h"
#include "base/snapshot.h"
#include "codec/codec.h"

namespace bs::codec {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
const float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kUnit = 65536;

CodecParameters OnebitOf(bool scaled) {
  const std::byte flag{scaled ? uint8_t{1} : uint8_t{0}};
  return CodecParameters(std::span(&flag, 1));
}
const CodecParameters kScaled = OnebitOf(true);

using OnebitCodes = std::vector<std::byte>;

// One byte off, as codes may be in a message.
OnebitCodes EncodeOnebits(const CodecParameters& parameters, const std::vector<float>& in,
                          std::vector<float>* residual, float ratio = 1) {
  const Codec codec = OnebitCodec();
  std::vector<std::byte> room(1 + codec.encoded_bytes(parameters, in.size()), std::byte{0xee});
  codec.encode(parameters, {.ratio = ratio}, in.data(),
               residual == nullptr ? nullptr : residual->data(), room.data() + 1, in.size());
  return {room.begin() + 1, room.end()};
}

std::vector<float> DecodeOnebits(const CodecParameters& parameters, const OnebitCodes& codes,
                                 size_t count) {
  std::vector<float> values(count, 99);
  OnebitCodec().decode(parameters, {}, codes.data(), values.data(), count);
  return values;
}

// A straight reading of the specification: lanes, magnitudes, bits, residual.
void ReferUnit(bool scaled, const float* in, float* residual, float ratio, size_t count,
               OnebitCodes* codes) {
  double lanes[8] = {};
  std::vector<float> p(count);
  bool is_finite = true;
  for (size_t i = 0; i < count; ++i) {
    const float kept = residual == nullptr ? 0.0F : ratio * residual[i];
    p[i] = residual == nullptr ? in[i] : in[i] + kept;
    is_finite = is_finite && std::isfinite(p[i]);
    lanes[i % 8] += std::abs(static_cast<double>(p[i]));
  }
  const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                     ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  float a = scaled ? static_cast<float>(sum / static_cast<double>(count)) : 1.0F;
  if (!is_finite) a = kNoNumber;
  const auto bytes = std::bit_cast<std::array<std::byte, 4>>(a);
  codes->insert(codes->end(), bytes.begin(), bytes.end());
  std::vector<uint8_t> signs((count + 7) / 8);
  for (size_t i = 0; i < count; ++i) {
    if (!is_finite) {
      if (residual == nullptr) continue;
      const float product = ratio * residual[i];
      residual[i] = std::isfinite(product) ? product : 0;
      continue;
    }
    if (std::signbit(p[i])) signs[i / 8] = static_cast<uint8_t>(signs[i / 8] | 1U << (i % 8));
    if (residual != nullptr) residual[i] = p[i] - (std::signbit(p[i]) ? -a : a);
  }
  for (const uint8_t sign : signs) codes->push_back(std::byte{sign});
}

OnebitCodes ReferOnebits(bool scaled, const std::vector<float>& in, std::vector<float>* residual,
                         float ratio) {
  OnebitCodes codes;
  for (size_t at = 0; at < in.size(); at += kUnit) {
    ReferUnit(scaled, in.data() + at, residual == nullptr ? nullptr : residual->data() + at, ratio,
              std::min(kUnit, in.size() - at), &codes);
  }
  return codes;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(Onebit, CodesAndResidualsEqualTheReference) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const size_t count :
       {size_t{1}, size_t{7}, size_t{8}, size_t{9}, kUnit - 1, kUnit, kUnit + 1, 2 * kUnit + 13}) {
    std::vector<float> in(count);
    for (float& value : in) value = normal(random);
    for (const bool scaled : {true, false}) {
      EXPECT_EQ(EncodeOnebits(OnebitOf(scaled), in, nullptr), ReferOnebits(scaled, in, nullptr, 1));
      std::vector<float> residual(count);
      std::vector<float> expected = residual;
      for (const float ratio : {1.0F, 0.5F, 0.1F, 3.0F}) {
        EXPECT_EQ(EncodeOnebits(OnebitOf(scaled), in, &residual, ratio),
                  ReferOnebits(scaled, in, &expected, ratio));
        EXPECT_EQ(BitsOf(residual), BitsOf(expected));
      }
    }
  }
}

TEST(Onebit, NumbersAtTheEdgesEqualTheReference) {
  const float least = std::numeric_limits<float>::denorm_min();
  const float most = std::numeric_limits<float>::max();
  for (const std::vector<float>& in :
       {std::vector<float>{0, 0, 0}, std::vector<float>{-0.0F, 0, -0.0F},
        std::vector<float>{least, -least, least, 0}, std::vector<float>{2, -2, 2, -2, 2},
        std::vector<float>{most, most, -most}, std::vector<float>{1, kInfinite, 3},
        std::vector<float>{1, -kInfinite}, std::vector<float>{kNoNumber, 2}}) {
    std::vector<float> residual(in.size(), 0.25F);
    std::vector<float> expected = residual;
    EXPECT_EQ(EncodeOnebits(kScaled, in, &residual, 0.5F), ReferOnebits(true, in, &expected, 0.5F));
    EXPECT_EQ(BitsOf(residual), BitsOf(expected));
  }
}

TEST(Onebit, AMagnitudeThenTheSignsLowestBitFirst) {
  const OnebitCodes codes = EncodeOnebits(kScaled, {1, -2, 3, 4, -5, 6, 7, 8, -9}, nullptr);
  EXPECT_EQ(codes, (OnebitCodes{std::byte{0}, std::byte{0}, std::byte{0xa0}, std::byte{0x40},
                                std::byte{0b00010010}, std::byte{1}}));  // 5
  EXPECT_EQ(DecodeOnebits(kScaled, codes, 9), (std::vector<float>{5, -5, 5, 5, -5, 5, 5, 5, -5}));
  std::vector<float> sum(9, 10);
  OnebitCodec().add(kScaled, {}, codes.data(), sum.data(), 9);
  EXPECT_EQ(sum, (std::vector<float>{15, 5, 15, 15, 5, 15, 15, 15, 5}));
}

TEST(Onebit, AUnitHasEightThousandOneHundredAndNinetySixBytes) {
  const auto bytes = [](uint64_t count) { return OnebitCodec().encoded_bytes(kScaled, count); };
  EXPECT_EQ(bytes(0), 0U);
  EXPECT_EQ(bytes(1), 5U);
  EXPECT_EQ(bytes(8), 5U);
  EXPECT_EQ(bytes(9), 6U);
  EXPECT_EQ(bytes(kUnit), 8196U);
  EXPECT_EQ(bytes(kUnit + 1), 8201U);
}

TEST(Onebit, AUnitThatIsNotFiniteIsNanAndLeavesItsResidual) {
  std::vector<float> in(kUnit + 8, 1);
  in[5] = kInfinite;
  std::vector<float> residual(in.size(), 2);
  const OnebitCodes codes = EncodeOnebits(kScaled, in, &residual, 0.5F);
  const std::vector<float> values = DecodeOnebits(kScaled, codes, in.size());
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[kUnit - 1]));
  EXPECT_EQ(values[kUnit], 2) << "the next unit is 1 + 0.5 * 2";
  EXPECT_EQ(residual[0], 1);
  EXPECT_EQ(residual[5], 1);
  EXPECT_EQ(residual[kUnit], 0);
  std::vector<float> sum(in.size(), 3);
  OnebitCodec().add(kScaled, {}, codes.data(), sum.data(), sum.size());
  EXPECT_EQ(std::bit_cast<uint32_t>(sum[7]), 0x7fc00000U);
}

TEST(Onebit, AResidualThatItsFactorMakesInfiniteCostsOneRound) {
  std::vector<float> residual = {1e30F, 1};
  EXPECT_TRUE(std::isnan(
      DecodeOnebits(kScaled, EncodeOnebits(kScaled, {1, 1}, &residual, 1e20F), 2).at(0)));
  EXPECT_EQ(residual, (std::vector<float>{0, 1e20F}));
  residual = {1e30F, 1};
  EncodeOnebits(kScaled, {1, kInfinite}, &residual, 1e20F);
  EXPECT_EQ(residual.at(0), 0);
  for (int round = 0; round < 2; ++round) {
    const OnebitCodes codes = EncodeOnebits(kScaled, {1, 1}, &residual, 1e-20F);
    EXPECT_TRUE(std::isfinite(DecodeOnebits(kScaled, codes, 2).at(0))) << round;
  }
}

// U3: what remains is (1 - |x|_1^2 / (n |x|_2^2)) |x|_2^2.
TEST(Onebit, ScaledCodesAreAContraction) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 20; ++round) {
    std::vector<float> in(1000);
    for (float& value : in) value = normal(random) * normal(random);
    std::vector<float> residual(in.size());
    EncodeOnebits(kScaled, in, &residual);
    double l1 = 0;
    double l2 = 0;
    double rest = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      l1 += std::abs(static_cast<double>(in[i]));
      l2 += static_cast<double>(in[i]) * in[i];
      rest += static_cast<double>(residual[i]) * residual[i];
    }
    EXPECT_NEAR(rest, l2 - l1 * l1 / static_cast<double>(in.size()), 1e-5 * l2);
  }
}

// U4: what was sent and what is left are all that went in.
TEST(Onebit, NothingIsLostInAThousandRounds) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> whole(-9, 9);
  constexpr size_t kCount = 50;
  std::vector<float> residual(kCount);
  std::vector<double> given(kCount);
  std::vector<double> sent(kCount);
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> in(kCount);
    for (size_t i = 0; i < kCount; ++i) given[i] += in[i] = static_cast<float>(whole(random));
    const OnebitCodes codes = EncodeOnebits(kScaled, in, &residual);
    const std::vector<float> values = DecodeOnebits(kScaled, codes, kCount);
    for (size_t i = 0; i < kCount; ++i) sent[i] += values[i];
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(sent[i] + residual[i], given[i], 0.01) << i;
}

// The codes of `in`, the residual behind them, their values, and `sum` with these added.
using CodedOnebits =
    std::tuple<OnebitCodes, std::vector<uint32_t>, std::vector<uint32_t>, std::vector<uint32_t>>;
CodedOnebits CodeOnebits(const std::vector<float>& in, std::vector<float> residual, float ratio,
                         std::vector<float> sum) {
  const OnebitCodes codes = EncodeOnebits(kScaled, in, &residual, ratio);
  const std::vector<float> values = DecodeOnebits(kScaled, codes, in.size());
  OnebitCodec().add(kScaled, {}, codes.data(), sum.data(), sum.size());
  return {codes, BitsOf(residual), BitsOf(values), BitsOf(sum)};
}

TEST(Onebit, BitsDoNotDependOnTheThreadsRounding) {
  const std::vector<float> in = {1, 0x1p-30F, -3, 1e-40F, 5, -0.1F, 7, 1e-3F, 0.3F, -11};
  const std::vector<float> residual(in.size(), 0.1F);
  const std::vector<float> sum(in.size(), 0x1p-30F);
  const CodedOnebits expected = CodeOnebits(in, residual, 0.3F, sum);
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(rounding), 0);
    const CodedOnebits coded = CodeOnebits(in, residual, 0.3F, sum);
    EXPECT_EQ(std::fegetround(), rounding) << "the caller's";
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    EXPECT_EQ(coded, expected) << rounding;
  }
}

#ifdef __SSE2__
// Ten elements: eight, and two that the kernels get with zeros behind.
TEST(Onebit, KeepsSubnormalsWhereTheThreadDoesNot) {
  const std::vector<float> in = {0x5p-149F,  -0x5p-149F, 0x5p-149F, 0x5p-149F, 0x5p-149F,
                                 -0x5p-149F, 0x5p-149F,  0x5p-149F, 0x7p-149F, -0x3p-149F};
  const std::vector<float> residual(in.size());
  const std::vector<float> sum(in.size(), 0x1p-149F);
  const CodedOnebits coded = [&] {
    const FlushToZero flush;
    return CodeOnebits(in, residual, 1, sum);
  }();
  constexpr uint32_t kMinus = 0x80000000U;
  EXPECT_EQ(std::get<0>(coded), (OnebitCodes{std::byte{5}, std::byte{0}, std::byte{0}, std::byte{0},
                                             std::byte{0b00100010}, std::byte{0b10}}));
  EXPECT_EQ(std::get<1>(coded), (std::vector<uint32_t>{0, 0, 0, 0, 0, 0, 0, 0, 2, 2}));
  EXPECT_EQ(std::get<2>(coded),
            (std::vector<uint32_t>{5, kMinus | 5U, 5, 5, 5, kMinus | 5U, 5, 5, 5, kMinus | 5U}));
  EXPECT_EQ(std::get<3>(coded),
            (std::vector<uint32_t>{6, kMinus | 4U, 6, 6, 6, kMinus | 4U, 6, 6, 6, kMinus | 4U}));
}
#endif

Status CheckChanged(bool scaled, float magnitude, uint8_t last) {
  OnebitCodes codes = EncodeOnebits(OnebitOf(scaled), std::vector<float>(kUnit + 3, 1), nullptr);
  std::memcpy(codes.data() + 8196, &magnitude, sizeof(magnitude));
  codes.back() = std::byte{last};
  return OnebitCodec().check_codes(OnebitOf(scaled), codes, kUnit + 3);
}

TEST(Onebit, CodesThatLieAreRefused) {
  EXPECT_TRUE(CheckChanged(true, 0.5F, 7).ok());
  EXPECT_TRUE(CheckChanged(true, kNoNumber, 0).ok());
  EXPECT_TRUE(CheckChanged(false, 1, 7).ok());
  EXPECT_TRUE(CheckChanged(false, kNoNumber, 0).ok());
  EXPECT_SNAPSHOT(CheckChanged(true, kInfinite, 7).message(), "the magnitude of a unit is inf");
  EXPECT_FALSE(CheckChanged(true, -1, 7).ok());
  EXPECT_FALSE(CheckChanged(true, -0.0F, 7).ok());
  EXPECT_FALSE(CheckChanged(false, 0.5F, 7).ok());
  EXPECT_SNAPSHOT(CheckChanged(true, 1, 8).message(), "signs behind the last element");
}

Result<Coding> ParseOnebits(const std::vector<Option>& options) {
  const std::string_view name = "onebit";
  return Builtin().Parse(&name, options);
}

TEST(Onebit, OptionsAreScalingAndErrorFeedback) {
  const Coding bare = ParseOnebits({}).value();
  EXPECT_EQ(bare, (Coding{.codec = 4, .parameters = OnebitOf(false), .sums = SumsTravel::kSame}));
  EXPECT_FALSE(Builtin().KeepsResidual(bare));
  const Coding kept = ParseOnebits({{"scaling", "True"}, {"ef", "corrected"}}).value();
  EXPECT_EQ(kept.parameters, kScaled);
  EXPECT_EQ(kept.feedback, Feedback::kCorrected);
  EXPECT_TRUE(Builtin().KeepsResidual(kept));
  EXPECT_TRUE(Builtin().KeepsResidual(Builtin().OfSums(kept)));
  EXPECT_EQ(Builtin().Describe(kept), "compressed to onebit scaled, ef corrected");
  EXPECT_EQ(Builtin().Describe(ParseOnebits({{"ef", "vanilla"}, {"pull", "bf16"}}).value()),
            "compressed to onebit, ef vanilla, pull bf16");
}

TEST(Onebit, WrongOptionsAreNamedWithTheRightValues) {
  EXPECT_SNAPSHOT(ParseOnebits({{"scaling", "maybe"}}).status().message(),
                  "scaling 'maybe' of gradient compression: want True or False");
  EXPECT_SNAPSHOT(ParseOnebits({{"ef", "sparse"}}).status().message(),
                  "ef 'sparse' of gradient compression: want 'vanilla' or 'corrected'");
  EXPECT_SNAPSHOT(ParseOnebits({{"partition", "linear"}}).status().message(),
                  "gradient compression by 'onebit' has no option 'partition' ('linear'), only "
                  "'scaling', 'ef' and 'pull'");
  EXPECT_FALSE(ParseOnebits({{"ef", ""}}).ok());
}

TEST(Onebit, ParametersAndFeedbackFromTheWireAreChecked) {
  Coding coding{.codec = 4, .parameters = kScaled};
  EXPECT_TRUE(Builtin().Check(coding).ok());
  coding.feedback = Feedback::kSparse;
  EXPECT_FALSE(Builtin().Check(coding).ok());
  coding.feedback = static_cast<Feedback>(4);
  EXPECT_FALSE(Builtin().Check(coding).ok());
  EXPECT_FALSE(Builtin().Check({.codec = 4}).ok());
  const std::byte two{2};
  EXPECT_FALSE(
      Builtin().Check({.codec = 4, .parameters = CodecParameters(std::span(&two, 1))}).ok());
  EXPECT_SNAPSHOT(Builtin().Check({.codec = 3, .feedback = Feedback::kVanilla}).message(),
                  "ef of gradient compression: 'bf16' has none");
}

}  // namespace
}  // namespace bs::codec
