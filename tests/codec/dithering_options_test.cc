// Options of dithering as users and peers give them.
#include "codec/dithering_options.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"

namespace bs::codec {
namespace {

Result<Coding> ParseDither(const std::vector<Option>& options) {
  const std::string_view name = "dithering";
  return Builtin().Parse(&name, options);
}

TEST(DitherOptions, GiveCodesOfTwoFourEightOrSixteenBits) {
  for (const auto& [levels, want] : std::vector<std::pair<uint32_t, uint32_t>>{
           {1, 2}, {2, 4}, {7, 4}, {8, 8}, {127, 8}, {128, 16}, {32767, 16}}) {
    EXPECT_EQ(DitherOptions{.levels = levels}.width(), want) << levels;
  }
}

TEST(DitherOptions, AreReadAsTheyWereWritten) {
  const Coding coding =
      ParseDither(
          {{"k", "1000"}, {"normalize", "l2"}, {"bucket", "65536"}, {"seed", "81985529216486895"}})
          .value();
  EXPECT_EQ(
      ReadDitherOptions(coding.parameters),
      (DitherOptions{.is_l2 = true, .levels = 1000, .bucket = 65536, .seed = 0x0123456789abcdef}));
}

TEST(DitherOptions, HaveDefaultsButForTheLevels) {
  const auto describe = [](const std::vector<Option>& options) {
    return Builtin().Describe(ParseDither(options).value());
  };
  EXPECT_SNAPSHOT(describe({{"k", "7"}}),
                  "compressed to dithering with k 7 linear max, bucket 2048");
  EXPECT_SNAPSHOT(describe({{"partition", "natural"},
                            {"normalize", "l2"},
                            {"bucket", "64"},
                            {"seed", "18446744073709551615"},
                            {"ef", "vanilla"},
                            {"k", "30"},
                            {"pull", "plain"}}),
                  "compressed to dithering with k 30 natural l2, bucket 64, seed "
                  "18446744073709551615, ef vanilla, pull plain");
}

std::string Fault(const std::vector<Option>& options) {
  return ParseDither(options).status().message();
}

TEST(DitherOptions, AreNamedWithTheRightValuesWhereTheyAreWrong) {
  EXPECT_SNAPSHOT(Fault({{"seed", "4"}}),
                  "gradient compression by 'dithering' needs k, the number of levels: want a whole "
                  "number from 1 to 32767 with partition 'linear', such as 7");
  EXPECT_SNAPSHOT(Fault({{"k", "31"}, {"partition", "natural"}}),
                  "k '31' of gradient compression: want a whole number from 1 to 30 with partition "
                  "'natural'");
  for (const char* const levels : {"0", "-1", "0.5", "32768", "", "7 ", "True"}) {
    EXPECT_NE(Fault({{"k", levels}}), "") << levels;
  }
  EXPECT_SNAPSHOT(Fault({{"k", "7"}, {"partition", "cubic"}}),
                  "partition 'cubic' of gradient compression: want 'linear' or 'natural'");
  EXPECT_SNAPSHOT(Fault({{"k", "7"}, {"normalize", "L2"}}),
                  "normalize 'L2' of gradient compression: want 'max' or 'l2'");
  EXPECT_SNAPSHOT(Fault({{"k", "7"}, {"bucket", "100"}}),
                  "bucket '100' of gradient compression: want a multiple of 64 from 64 to 65536");
  for (const char* const bucket : {"0", "32", "65600", "64.5"}) {
    EXPECT_NE(Fault({{"k", "7"}, {"bucket", bucket}}), "") << bucket;
  }
  EXPECT_SNAPSHOT(
      Fault({{"k", "7"}, {"seed", "0"}}),
      "seed '0' of gradient compression: want a whole number from 1 to 18446744073709551615");
  EXPECT_NE(Fault({{"k", "7"}, {"seed", "18446744073709551616"}}), "");
  EXPECT_SNAPSHOT(Fault({{"k", "7"}, {"scaling", "True"}}),
                  "gradient compression by 'dithering' has no option 'scaling' ('True'), only 'k', "
                  "'partition', 'normalize', 'bucket', 'seed', 'ef' and 'pull'");
}

TEST(DitherOptions, FromTheWireAreChecked) {
  const auto check = [](size_t at, uint8_t byte) {
    const Coding good = ParseDither({{"k", "127"}}).value();
    const std::span<const std::byte> bytes = good.parameters.bytes();
    std::vector<std::byte> changed(bytes.begin(), bytes.end());
    if (at < changed.size()) changed[at] = std::byte{byte};
    if (at == changed.size()) changed.push_back(std::byte{byte});
    return Builtin().Check({.codec = 6, .parameters = CodecParameters(changed)});
  };
  EXPECT_TRUE(check(99, 0).ok());
  EXPECT_TRUE(check(14, 1).ok()) << "another seed";
  EXPECT_SNAPSHOT(check(0, 4).message(),
                  "parameters that are not 15 bytes: 0 to 3, levels, a bucket and a seed");
  EXPECT_FALSE(check(0, 1).ok()) << "127 natural levels";
  EXPECT_FALSE(check(1, 0).ok()) << "no levels";
  EXPECT_FALSE(check(3, 1).ok()) << "a bucket of 2049";
  EXPECT_FALSE(check(6, 1).ok()) << "a bucket of 16 Mi";
  EXPECT_FALSE(check(15, 0).ok()) << "16 bytes";
  EXPECT_GT(Builtin().SentBytes({.codec = 6}, 4000), 0U) << "any parameters";
}

}  // namespace
}  // namespace bs::codec
