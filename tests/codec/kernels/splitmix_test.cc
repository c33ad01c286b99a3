// Random words against those of the generator's authors.
#include "codec/kernels/splitmix.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace bs::codec {
namespace {

TEST(Splitmix, WordsFromZeroAreKnown) {
  Splitmix words({});
  EXPECT_EQ(words.Next(), 0xE220A8397B1DCDAFU);
  EXPECT_EQ(words.Next(), 0x6E789E6AA1B965F4U);
  EXPECT_EQ(words.Next(), 0x06C45D188009454FU);
}

// A number that is taken in is mixed with all before it.
TEST(Splitmix, WordsFollowFromAllNumbersAndTheirOrder) {
  const auto first = [](const std::array<uint64_t, 2>& numbers) {
    return Splitmix(numbers).Next();
  };
  EXPECT_EQ(Splitmix(std::array<uint64_t, 1>{0}).Next(),
            MixOfSplit(MixOfSplit(kSplitmixStep) + kSplitmixStep));
  EXPECT_NE(first({1, 2}), first({2, 1}));
  EXPECT_NE(first({1, 2}), first({1, 3}));
  EXPECT_NE(first({1, 2}), first({0, 2}));
  EXPECT_EQ(first({1, 2}), first({1, 2}));
}

}  // namespace
}  // namespace bs::codec
