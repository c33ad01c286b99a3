// The row of int8: dithering with its options.
#include "codec/int8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"

namespace bs::codec {
namespace {

Result<Coding> ParseAs(std::string_view name, const std::vector<Option>& options) {
  return Builtin().Parse(&name, options);
}

TEST(Int8, HasTheCodesOfDitheringWith127LevelsIn256) {
  const Coding int8 = ParseAs("int8", {{"seed", "9"}}).value();
  const Coding dithering =
      ParseAs("dithering", {{"k", "127"}, {"bucket", "256"}, {"seed", "9"}}).value();
  EXPECT_EQ(int8.codec, 8U);
  EXPECT_EQ(int8.parameters, dithering.parameters);
  EXPECT_EQ(int8.sums, SumsTravel::kSame);
  EXPECT_EQ(Builtin().SentBytes(int8, 4 * 65536), 256U * 4 + 65536);
  std::vector<float> in(1000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i * 37 % 101) - 50;
  std::vector<std::byte> codes(Builtin().SentBytes(int8, 4 * in.size()));
  std::vector<std::byte> expected = codes;
  Builtin().Get(int8).encode(int8.parameters, {}, in.data(), nullptr, codes.data(), in.size());
  Builtin().Get(dithering).encode(dithering.parameters, {}, in.data(), nullptr, expected.data(),
                                  in.size());
  EXPECT_EQ(codes, expected);
  EXPECT_TRUE(Builtin().Get(int8).check_codes(int8.parameters, codes, in.size()).ok());
}

TEST(Int8, KeepsAResidualIfItIsAskedFor) {
  EXPECT_FALSE(Builtin().KeepsResidual(ParseAs("int8", {}).value()));
  const Coding kept = ParseAs("int8", {{"ef", "corrected"}}).value();
  EXPECT_TRUE(Builtin().KeepsResidual(kept));
  EXPECT_SNAPSHOT(Builtin().Describe(kept), "compressed to int8, ef corrected");
}

TEST(Int8, WrongOptionsAreNamed) {
  EXPECT_SNAPSHOT(ParseAs("int8", {{"bucket", "64"}}).status().message(),
                  "gradient compression by 'int8' has no option 'bucket' ('64'), only 'seed', 'ef' "
                  "and 'pull': 'dithering' has more");
  EXPECT_FALSE(ParseAs("int8", {{"seed", "0"}}).ok());
}

TEST(Int8, ParametersOfOtherLevelsAreRefused) {
  Coding coding = ParseAs("dithering", {{"k", "126"}, {"bucket", "256"}}).value();
  EXPECT_TRUE(Builtin().Check(coding).ok());
  coding.codec = 8;
  EXPECT_SNAPSHOT(Builtin().Check(coding).message(),
                  "parameters that are not those of 127 levels in 256 and a seed");
  EXPECT_FALSE(Builtin().Check({.codec = 8}).ok());
  const Coding seeded = ParseAs("int8", {{"seed", "77"}}).value();
  EXPECT_TRUE(Builtin().Check(seeded).ok());
  EXPECT_EQ(Builtin().Describe(seeded), "compressed to int8 with seed 77");
}

}  // namespace
}  // namespace bs::codec
