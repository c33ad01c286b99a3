// Codes, values and residuals of dithering: those of a model, random numbers, bounds, and lies.
#include "codec/dithering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/flush_to_zero.h"
#include "base/snapshot.h"
#include "codec/codec.h"
#include "codec/goldens/dithering_golden.h"

namespace bs::codec {
namespace {

constexpr size_t kUnitOfFloats = 65536;
constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMostFloat = std::numeric_limits<float>::max();

using DitherBytes = std::vector<std::byte>;
using Floats = std::vector<float>;

Result<Coding> ParseDithers(std::string_view name, const std::vector<Option>& options) {
  return Builtin().Parse(&name, options);
}

// The codec and its parameters that a user's options ask for.
class Dither {
 public:
  Dither(std::string_view name, const std::vector<Option>& options)
      : coding_(ParseDithers(name, options).value()), codec_(Builtin().Get(coding_)) {}

  size_t SizeOf(size_t count) const { return codec_.encoded_bytes(coding_.parameters, count); }
  // One byte off, as codes may be in a message.
  DitherBytes Encode(const Floats& in, Floats* residual = nullptr, const Place& place = {}) const {
    DitherBytes room(1 + SizeOf(in.size()), std::byte{0xee});
    codec_.encode(coding_.parameters, place, in.data(),
                  residual == nullptr ? nullptr : residual->data(), room.data() + 1, in.size());
    return {room.begin() + 1, room.end()};
  }
  Floats Decode(const DitherBytes& codes, size_t count) const {
    Floats values(count, 99);
    codec_.decode(coding_.parameters, {}, codes.data(), values.data(), count);
    return values;
  }
  void Add(const DitherBytes& codes, Floats* sum) const {
    codec_.add(coding_.parameters, {}, codes.data(), sum->data(), sum->size());
  }
  Status Check(const DitherBytes& codes, size_t count) const {
    return codec_.check_codes(coding_.parameters, codes, count);
  }

 private:
  const Coding coding_;
  const Codec& codec_;
};

// -- the model -------------------------------------------------------------------------------

// METHODS of the model.
const std::vector<std::vector<Option>> kMethods = {
    {{"k", "7"}, {"seed", "1"}},
    {{"k", "1"}, {"normalize", "l2"}, {"bucket", "64"}, {"seed", "3"}},
    {{"k", "127"}, {"bucket", "256"}, {"seed", "5"}},
    {{"k", "100"}, {"normalize", "l2"}, {"bucket", "65536"}, {"seed", "18446744073709551615"}},
    {{"k", "1000"}, {"normalize", "l2"}, {"bucket", "192"}, {"seed", "7"}},
    {{"k", "3"}, {"partition", "natural"}, {"seed", "11"}},
    {{"k", "7"}, {"partition", "natural"}, {"normalize", "l2"}, {"bucket", "128"}, {"seed", "13"}},
    {{"k", "30"}, {"partition", "natural"}, {"bucket", "4096"}, {"seed", "17"}}};

float GoldenAt(size_t input, size_t index, size_t count) {
  const uint64_t drawn = (index * 2654435761U + 12345) % (1U << 24U);
  const float value = (static_cast<float>(drawn) - 0x1p23F) * 0x1p-20F;
  switch (input) {
    case 1:
      return 0;
    case 2:
      return -0.0F;
    case 3:
      return (static_cast<float>(drawn % 13) - 6) * 0x1p-149F;
    case 4:
      return index % 3 == 0 ? -0.75F : 0.75F;
    case 5:
      return value * 0x1p124F;
    case 6:
      return index == count / 2 ? kInfiniteFloat : value;
    case 7:
      return index == count / 2 ? kQuietNan : value;
    default:
      return value;
  }
}

Floats GoldenInput(size_t input, size_t count) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = GoldenAt(input, i, count);
  return values;
}

uint32_t ChecksumOf(const void* bytes, size_t count) {
  uint32_t sum = ~0U;
  for (size_t i = 0; i < count; ++i) {
    sum ^= static_cast<const unsigned char*>(bytes)[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~sum;
}

TEST(Dithering, CodesAndResidualsEqualTheModel) {
  Place place{.key = (uint64_t{1} << 63U) + 5, .round = 3, .rank = 2};
  for (const testing::DitherGolden& golden : testing::kDitherGolden) {
    const Dither dither("dithering", kMethods.at(golden.method));
    Floats residual(golden.count);
    place.ratio = 1;
    const DitherBytes codes =
        dither.Encode(GoldenInput(golden.input, golden.count), &residual, place);
    place.ratio = 0.3F;
    const DitherBytes next = dither.Encode(GoldenInput(0, golden.count), &residual, place);
    const std::array<uint32_t, 3> sums = {
        ChecksumOf(codes.data(), codes.size()), ChecksumOf(next.data(), next.size()),
        ChecksumOf(residual.data(), residual.size() * sizeof(float))};
    EXPECT_EQ(sums, (std::array{golden.codes, golden.next_codes, golden.residual}))
        << "method " << golden.method << " input " << golden.input << " count " << golden.count;
  }
}

// -- levels and codes ------------------------------------------------------------------------

DitherBytes Behind(float norm, const std::vector<uint8_t>& codes) {
  const auto bytes = std::bit_cast<std::array<std::byte, 4>>(norm);
  DitherBytes all(bytes.begin(), bytes.end());
  for (const uint8_t code : codes) all.push_back(std::byte{code});
  return all;
}

TEST(Dithering, LinearLevelsLieBehindTheNormLowestBitsFirst) {
  const Dither dither("dithering", {{"k", "7"}});
  const Floats in = {7, -3, 0, -7, 1};
  const DitherBytes codes = dither.Encode(in);
  EXPECT_EQ(codes, Behind(7, {0xb7, 0xf0, 0x01}));
  EXPECT_EQ(dither.Decode(codes, 5), in);
  Floats sum(5, 10);
  dither.Add(codes, &sum);
  EXPECT_EQ(sum, (Floats{17, 7, 10, 3, 11}));
}

TEST(Dithering, NaturalLevelsArePowersOfTwo) {
  const Dither dither("dithering", {{"k", "3"}, {"partition", "natural"}});
  const Floats in = {8, -4, 2, 0, -0.0F};
  const DitherBytes codes = dither.Encode(in);
  EXPECT_EQ(codes, Behind(8, {0xa3, 0x01, 0x00})) << "no sign of nothing";
  EXPECT_EQ(dither.Decode(codes, 5), in);
}

TEST(Dithering, UnitsAreSizedByBucketsAndCodes) {
  const Dither dither("dithering", {{"k", "7"}});
  EXPECT_EQ(dither.SizeOf(0), 0U);
  EXPECT_EQ(dither.SizeOf(1), 5U);
  EXPECT_EQ(dither.SizeOf(2049), 8U + 1025);
  EXPECT_EQ(dither.SizeOf(kUnitOfFloats), 32U * 4 + 32768);
  EXPECT_EQ(dither.SizeOf(kUnitOfFloats + 3), 32U * 4 + 32768 + 4 + 2);
}

TEST(Dithering, TheL2NormOfTheLargestNumbersIsFinite) {
  const Dither dither("dithering", {{"k", "7"}, {"normalize", "l2"}});
  const Floats in = {kMostFloat, -kMostFloat, 0};
  EXPECT_EQ(dither.Decode(dither.Encode(in), 3), in);
}

// -- what is not finite ----------------------------------------------------------------------

TEST(Dithering, AUnitThatIsNotFiniteIsNanAndLeavesItsResidual) {
  const Dither dither("dithering", {{"k", "7"}});
  Floats in(kUnitOfFloats + 8, 1);
  in[5] = kInfiniteFloat;
  Floats residual(in.size(), 2);
  residual[7] = 1e30F;
  const DitherBytes codes = dither.Encode(in, &residual, {.ratio = 0.5F});
  const Floats values = dither.Decode(codes, in.size());
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[kUnitOfFloats - 1]));
  EXPECT_EQ(values[kUnitOfFloats], 2) << "the next unit is 1 + 0.5 * 2";
  EXPECT_EQ(residual[0], 1);
  EXPECT_EQ(residual[5], 1);
  EXPECT_EQ(residual[kUnitOfFloats], 0);
  EXPECT_TRUE(dither.Check(codes, in.size()).ok());
  Floats sum(in.size(), 3);
  dither.Add(codes, &sum);
  EXPECT_EQ(std::bit_cast<uint32_t>(sum[9]), 0x7fc00000U);
  dither.Encode(in, &residual, {.ratio = 1e20F});
  EXPECT_EQ(residual[7], 0) << "its factor would make it infinite for good";
}

// -- random numbers --------------------------------------------------------------------------

TEST(Dithering, WorkersKeysRoundsSeedsAndServersDrawNumbersOfTheirOwn) {
  const Floats in = GoldenInput(0, 256);
  std::set<DitherBytes> codes;
  for (const char* const seed : {"1", "2"}) {
    const Dither dither("dithering", {{"k", "7"}, {"seed", seed}});
    for (const uint32_t rank : {0U, 1U, kServerRank}) {
      for (const uint64_t key : {7U, 8U}) {
        for (const uint64_t round : {1U, 2U}) {
          codes.insert(dither.Encode(in, nullptr, {.key = key, .round = round, .rank = rank}));
        }
      }
    }
  }
  EXPECT_EQ(codes.size(), 24U);
}

TEST(Dithering, WithoutASeedItIsTheJobsNumber) {
  const Floats in = GoldenInput(0, 256);
  for (const char* const name : {"dithering", "int8"}) {
    std::vector<Option> options;
    if (std::string_view(name) == "dithering") options.push_back({"k", "127"});
    const Dither dither(name, options);
    options.push_back({"seed", "3"});
    const Dither seeded(name, options);
    EXPECT_EQ(dither.Encode(in, nullptr, {.job = 3}), seeded.Encode(in, nullptr, {.job = 17}))
        << "the seed counts more than the job";
    EXPECT_NE(dither.Encode(in, nullptr, {.job = 4}), dither.Encode(in, nullptr, {.job = 3}));
  }
}

TEST(Dithering, UnitsDrawNumbersOfTheirOwnWhereverTheTensorIsCut) {
  const Dither dither("dithering", {{"k", "7"}});
  Floats in = GoldenInput(0, kUnitOfFloats);
  in.insert(in.end(), in.begin(), in.end());
  const DitherBytes codes = dither.Encode(in);
  const auto middle = codes.begin() + static_cast<ptrdiff_t>(codes.size() / 2);
  const DitherBytes first(codes.begin(), middle);
  const DitherBytes second(middle, codes.end());
  EXPECT_NE(first, second);
  in.resize(kUnitOfFloats);
  EXPECT_EQ(dither.Encode(in), first);
  EXPECT_EQ(dither.Encode(in, nullptr, {.first_element = kUnitOfFloats}), second);
}

TEST(Dithering, ARepeatHasTheSameCodes) {
  const Dither dither("dithering", {{"k", "7"}, {"partition", "natural"}});
  const Floats in = GoldenInput(0, 5000);
  const Place place{.key = 3, .round = 9, .rank = 1};
  EXPECT_EQ(dither.Encode(in, nullptr, place), dither.Encode(in, nullptr, place));
}

// -- U3: bounds, and no bias -----------------------------------------------------------------

struct Kind {
  const char* name;
  std::vector<Option> options;
  double levels;
  bool is_natural;
};

class DitheringOf : public ::testing::TestWithParam<Kind> {
 protected:
  // The norm of what is coded: alone in its bucket.
  static double NormIn(const DitherBytes& codes) {
    float norm = 0;
    std::memcpy(&norm, codes.data(), sizeof(norm));
    return norm;
  }
  // The gap between the levels around a magnitude.
  static double GapAt(double size, double norm) {
    const double least = norm * std::exp2(1 - GetParam().levels);
    if (!GetParam().is_natural) return norm / GetParam().levels;
    return size < least ? least : norm * std::exp2(std::floor(std::log2(size / norm)));
  }
};

TEST_P(DitheringOf, TheMeanOfManyRoundsIsTheGradient) {
  const Dither dither("dithering", GetParam().options);
  const Floats in = {0.9F, -0.5F, 0.3F, -0.1F, 0.03F, 0.001F, 0, -1e-7F, 0.77F, 1, -0.999F};
  constexpr int kRounds = 100000;
  std::vector<double> sums(in.size());
  std::vector<double> squares(in.size());
  double norm = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const DitherBytes codes =
        dither.Encode(in, nullptr, {.key = 5, .round = static_cast<uint64_t>(round)});
    norm = NormIn(codes);
    const Floats values = dither.Decode(codes, in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const double off = static_cast<double>(values[i]) - in[i];
      sums[i] += off;
      squares[i] += off * off;
    }
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const double mean = sums[i] / kRounds;
    const double error = std::sqrt((squares[i] / kRounds - mean * mean) / kRounds);
    // A probability is a multiple of 2^-16.
    EXPECT_LE(std::abs(mean), 5 * error + GapAt(std::abs(in[i]), norm) * 0x1p-16) << in[i];
  }
}

TEST_P(DitheringOf, AnElementGetsALevelBesideIt) {
  const Dither dither("dithering", GetParam().options);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Floats in(2048);
  for (float& value : in) value = normal(random) * normal(random);
  Floats residual(in.size());
  double variance = 0;
  double size = 0;
  for (uint64_t round = 0; round < 20; ++round) {
    std::fill(residual.begin(), residual.end(), 0.0F);
    const DitherBytes codes = dither.Encode(in, &residual, {.round = round});
    const double norm = NormIn(codes);
    const Floats values = dither.Decode(codes, in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_LE(std::abs(residual[i]), GapAt(std::abs(in[i]), norm) * (1 + 1e-5)) << in[i];
      EXPECT_EQ(residual[i], in[i] - values[i]);
      variance += static_cast<double>(residual[i]) * residual[i];
      size += static_cast<double>(in[i]) * in[i];
    }
  }
  if (GetParam().is_natural || std::string(GetParam().name).ends_with("Max")) return;
  // QSGD's bound: min(n / s^2, sqrt(n) / s).
  const auto n = static_cast<double>(in.size());
  const double s = GetParam().levels;
  EXPECT_LE(variance, std::min(n / (s * s), std::sqrt(n) / s) * size);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DitheringOf,
    ::testing::Values(
        Kind{"LinearMax", {{"k", "7"}}, 7, false},
        Kind{"LinearL2", {{"k", "7"}, {"normalize", "l2"}}, 7, false},
        Kind{"ManyLinearL2", {{"k", "1000"}, {"normalize", "l2"}}, 1000, false},
        Kind{"NaturalMax", {{"k", "7"}, {"partition", "natural"}}, 7, true},
        Kind{"NaturalL2", {{"k", "5"}, {"partition", "natural"}, {"normalize", "l2"}}, 5, true},
        Kind{"SignsMax", {{"k", "1"}}, 1, false},
        Kind{"Int8Max", {{"k", "127"}, {"bucket", "2048"}}, 127, false}),
    [](const auto& kind) { return std::string(kind.param.name); });

// What was sent and what is left are all that went in.
TEST(Dithering, NothingIsLostInAThousandRounds) {
  const Dither dither("dithering", {{"k", "3"}, {"partition", "natural"}, {"normalize", "l2"}});
  std::mt19937 random(7);
  std::uniform_int_distribution<int> whole(-9, 9);
  constexpr size_t kCount = 50;
  Floats residual(kCount);
  std::vector<double> given(kCount);
  std::vector<double> sent(kCount);
  for (uint64_t round = 1; round <= 1000; ++round) {
    Floats in(kCount);
    for (size_t i = 0; i < kCount; ++i) given[i] += in[i] = static_cast<float>(whole(random));
    const DitherBytes codes = dither.Encode(in, &residual, {.round = round});
    const Floats values = dither.Decode(codes, kCount);
    for (size_t i = 0; i < kCount; ++i) sent[i] += values[i];
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(sent[i] + residual[i], given[i], 0.05) << i;
}

// -- the caller's floating-point environment -------------------------------------------------

TEST(Dithering, BitsDoNotDependOnTheThreadsRounding) {
  const Dither dither("dithering", {{"k", "7"}, {"normalize", "l2"}});
  const Floats in = GoldenInput(0, 3000);
  Floats residual(in.size(), 0.1F);
  Floats expected = residual;
  const DitherBytes codes = dither.Encode(in, &expected, {.ratio = 0.3F});
  const Floats values = dither.Decode(codes, in.size());
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const DitherBytes upward = dither.Encode(in, &residual, {.ratio = 0.3F});
  const Floats decoded = dither.Decode(codes, in.size());
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(upward, codes);
  EXPECT_EQ(residual, expected);
  EXPECT_EQ(decoded, values);
}

#ifdef __SSE2__
TEST(Dithering, KeepsSubnormalsWhereTheThreadDoesNot) {
  const Dither dither("dithering", {{"k", "7"}});
  const Floats in = {0x7p-149F, -0x3p-149F};
  DitherBytes codes;
  Floats values;
  {
    const FlushToZero flush;
    codes = dither.Encode(in);
    values = dither.Decode(codes, 2);
  }
  EXPECT_EQ(codes, Behind(0x7p-149F, {0xb7}));
  EXPECT_EQ(values, in);
}
#endif

// -- codes that lie --------------------------------------------------------------------------

TEST(Dithering, NormsThatLieAreRefused) {
  const Dither dither("dithering", {{"k", "7"}});
  const auto with_norms = [&dither](float first, float second) {
    DitherBytes codes = dither.Encode(Floats(4096, 1));
    std::memcpy(codes.data(), &first, sizeof(first));
    std::memcpy(codes.data() + sizeof(first), &second, sizeof(second));
    return dither.Check(codes, 4096);
  };
  EXPECT_TRUE(with_norms(0.5F, 0).ok());
  EXPECT_TRUE(with_norms(kQuietNan, kQuietNan).ok());
  EXPECT_SNAPSHOT(with_norms(1, kInfiniteFloat).message(), "the norm of a bucket is inf");
  EXPECT_FALSE(with_norms(-1, 1).ok());
  EXPECT_FALSE(with_norms(1, -0.0F).ok());
  EXPECT_FALSE(with_norms(1, kQuietNan).ok());
  EXPECT_SNAPSHOT(with_norms(kQuietNan, 1).message(),
                  "the norm of a bucket is 1.000000 in a unit that is not finite");
}

TEST(Dithering, LevelsThatLieAreRefused) {
  for (const auto& [levels, high] : std::vector<std::pair<const char*, uint8_t>>{
           {"6", 0x70}, {"6", 0x07}, {"6", 0xf0}, {"100", 101}, {"100", 0xff}, {"1000", 0x04}}) {
    const Dither dither("dithering", {{"k", levels}});
    DitherBytes codes = dither.Encode(Floats(kUnitOfFloats + 2, 1));
    EXPECT_TRUE(dither.Check(codes, kUnitOfFloats + 2).ok());
    codes.back() = std::byte{high};
    EXPECT_FALSE(dither.Check(codes, kUnitOfFloats + 2).ok()) << levels << " " << int{high};
  }
  const Dither dither("dithering", {{"k", "100"}});
  EXPECT_SNAPSHOT(dither.Check(Behind(1, {100, 101}), 2).message(),
                  "the level of an element is 101, more than 100");
  EXPECT_SNAPSHOT(Dither("dithering", {{"k", "7"}}).Check(Behind(1, {0x17}), 1).message(),
                  "codes behind the last element");
  EXPECT_TRUE(Dither("dithering", {{"k", "1"}}).Check(Behind(1, {0x1e}), 3).ok());
  EXPECT_FALSE(Dither("dithering", {{"k", "1"}}).Check(Behind(1, {0x5e}), 3).ok());
}

}  // namespace
}  // namespace bs::codec
