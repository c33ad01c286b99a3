// Codes as MXNet 1.9.1 sends them, residuals, values, and what is no number.
#include "codec/two_bit.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace bs::codec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<unsigned char> Quantize(float threshold, const std::vector<float>& in,
                                    std::vector<float>* residual) {
  // 0xee: what is not written shows.
  std::vector<unsigned char> words(TwoBitBytes(in.size()), 0xee);
  QuantizeTwoBit(threshold, in.data(), residual->data(), words.data(), in.size());
  return words;
}

std::vector<float> Dequantize(float threshold, const std::vector<unsigned char>& words,
                              size_t count) {
  std::vector<float> values(count, 99);
  DequantizeTwoBit(threshold, words.data(), values.data(), count);
  return values;
}

TEST(TwoBit, SixteenElementsMakeAWord) {
  EXPECT_EQ(TwoBitBytes(0), 0U);
  EXPECT_EQ(TwoBitBytes(1), 4U);
  EXPECT_EQ(TwoBitBytes(16), 4U);
  EXPECT_EQ(TwoBitBytes(17), 8U);
  EXPECT_EQ(TwoBitBytes(16 * 1000003ULL), 4 * 1000003U);
  static_assert(TwoBitBytes(SIZE_MAX) == SIZE_MAX / 4 + 1);
}

TEST(TwoBit, FirstElementIsInTheHighestBitsOfTheFirstByte) {
  std::vector<float> residual(17, 0);
  std::vector<float> in(17, 0);
  in[0] = 1;   // 11......
  in[1] = -1;  // ..10....
  in[7] = 1;
  in[15] = -1;
  in[16] = 1;
  EXPECT_EQ(Quantize(0.5F, in, &residual),
            (std::vector<unsigned char>{0xe0, 0x03, 0x00, 0x02, 0xc0, 0, 0, 0}));
}

TEST(TwoBit, TheResidualComesWithTheNextRound) {
  std::vector<float> residual(4, 0);
  const std::vector<float> in = {0.25F, -0.25F, 1.25F, -0.5F};
  EXPECT_EQ(Quantize(0.5F, in, &residual), (std::vector<unsigned char>{0x0e, 0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0.25F, -0.25F, 0.75F, 0}));
  EXPECT_EQ(Quantize(0.5F, in, &residual), (std::vector<unsigned char>{0xee, 0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 1.5F, 0}));
  const std::vector<float> none(4, 0);
  EXPECT_EQ(Quantize(0.5F, none, &residual), (std::vector<unsigned char>{0x0c, 0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 1, 0}));
}

TEST(TwoBit, AFactorCountsForTheResidualAlone) {
  const Codec codec = TwoBitCodec();
  const std::vector<float> in = {0.25F, 0.75F, -0.5F};
  std::vector<float> residual = {0.5F, -1, 0};
  std::vector<unsigned char> words(4, 0xee);
  codec.encode(TwoBitCoding(1).parameters, {.ratio = 2, .rank = kServerRank}, in.data(),
               residual.data(), words.data(), in.size());
  EXPECT_EQ(words, (std::vector<unsigned char>{0xe0, 0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0.25F, -0.25F, -0.5F}));
}

TEST(TwoBit, EveryCodeHasItsValueAndOneIsNothing) {
  EXPECT_EQ(Dequantize(0.25F, {0b11100100, 0b00011011, 0, 0}, 8),
            (std::vector<float>{0.25F, -0.25F, 0, 0, 0, 0, -0.25F, 0.25F}));
}

// Captured from a stock worker: 37 elements, the first 32 of them to one server.
TEST(TwoBit, WordsOfAStockWorkerAreRead) {
  std::vector<float> expected(32, 0);
  expected[0] = 0.5F;
  expected[1] = -0.5F;
  expected[5] = 0.5F;
  expected[16] = -0.5F;
  EXPECT_EQ(Dequantize(0.5F, {0xe0, 0x30, 0, 0, 0x80, 0, 0, 0}, 32), expected);
  EXPECT_EQ(Dequantize(0.5F, {0, 0xc0, 0, 0}, 5), (std::vector<float>{0, 0, 0, 0, 0.5F}));
}

TEST(TwoBit, SumsAddTheValues) {
  const std::vector<unsigned char> words = {0b11100100, 0b11000000, 0, 0};
  std::vector<float> sum = {1, 2, 3, 4, kInf, 77};
  AddTwoBit(0.5F, words.data(), sum.data(), 5);
  EXPECT_EQ(sum, (std::vector<float>{1.5F, 1.5F, 3, 4, kInf, 77}));
}

TEST(TwoBit, NoNumberIsNeverSentAndStays) {
  std::vector<float> residual(3, 0);
  EXPECT_EQ(Quantize(1, {kNan, kInf, -kInf}, &residual),
            (std::vector<unsigned char>{0b00111000, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(residual[0]));
  EXPECT_EQ(residual[1], kInf);
  EXPECT_EQ(residual[2], -kInf);
}

TEST(TwoBit, ASumThatIsNoNumberIsTheOneNan) {
  std::vector<float> sum = {-kNan};
  const std::vector<unsigned char> plus = {0xc0, 0, 0, 0};
  AddTwoBit(1, plus.data(), sum.data(), 1);
  uint32_t bits = 0;
  std::memcpy(&bits, sum.data(), sizeof(bits));
  EXPECT_EQ(bits, 0x7fc00000U);
}

TEST(TwoBit, RoundsToNearestWhateverTheThreadIsSetTo) {
  std::vector<float> residual = {1, 1};
  std::vector<float> sum = {1};
  const std::vector<unsigned char> plus = {0xc0, 0, 0, 0};
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  Quantize(4, {0x1p-30F, 0}, &residual);
  AddTwoBit(0x1p-30F, plus.data(), sum.data(), 1);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(residual, (std::vector<float>{1, 1}));
  EXPECT_EQ(sum, (std::vector<float>{1}));
}

// What comes out over many rounds is what went in, but for what the residual still holds.
TEST(TwoBit, NothingIsLostOverManyRoundsAtAnyLengthAndAlignment) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> quarters(-7, 7);
  for (size_t count = 0; count < 70; ++count) {
    // One byte off, as it may be in a message.
    std::vector<unsigned char> in(count * sizeof(float) + 1);
    std::vector<unsigned char> words(TwoBitBytes(count) + 1);
    std::vector<unsigned char> sum(count * sizeof(float) + 1);
    std::vector<float> residual(count, 0);
    std::vector<float> total(count, 0);
    for (int round = 0; round < 9; ++round) {
      for (size_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(quarters(random)) / 4;
        std::memcpy(&in[1 + i * sizeof(float)], &value, sizeof(value));
        total[i] += value;
      }
      QuantizeTwoBit(0.5F, in.data() + 1, residual.data(), words.data() + 1, count);
      AddTwoBit(0.5F, words.data() + 1, sum.data() + 1, count);
    }
    for (size_t i = 0; i < count; ++i) {
      float sent = 0;
      std::memcpy(&sent, &sum[1 + i * sizeof(float)], sizeof(sent));
      ASSERT_EQ(sent + residual[i], total[i]) << count << " elements, element " << i;
    }
  }
}

}  // namespace
}  // namespace bs::codec
