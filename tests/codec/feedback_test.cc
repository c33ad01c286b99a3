// The factor of a residual from round to round.
#include "codec/feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bs::codec {
namespace {

PushRates RatesAt(double learning_rate, double rescale_grad) {
  return {.learning_rate = learning_rate, .weight_decay = {}, .rescale_grad = rescale_grad};
}

float FactorOf(Feedback feedback, const PushRates& before, const PushRates& now) {
  return RatioOf(feedback, before, now).factor;
}

// U6: against a reference in float64.
TEST(ResidualRatio, FollowsASchedule) {
  const double etas[] = {0.1, 0.1, 0.01, 0, 0.1, 0.05};
  const double rescales[] = {1.0 / 64, 1.0 / 128, 1.0 / 128, 1.0 / 128, 1.0 / 64, 1.0 / 64};
  const double expected[] = {2, 10, 1, 0.5, 2};  // by hand
  for (size_t t = 1; t < std::size(etas); ++t) {
    const PushRates before = RatesAt(etas[t - 1], rescales[t - 1]);
    const PushRates now = RatesAt(etas[t], rescales[t]);
    EXPECT_FLOAT_EQ(FactorOf(Feedback::kCorrected, before, now),
                    static_cast<float>(expected[t - 1]));
    EXPECT_EQ(FactorOf(Feedback::kSparse, before, now),
              FactorOf(Feedback::kCorrected, before, now));
    EXPECT_EQ(FactorOf(Feedback::kVanilla, before, now),
              static_cast<float>(rescales[t - 1] / rescales[t]))
        << "vanilla follows rescale_grad alone";
    EXPECT_EQ(FactorOf(Feedback::kNone, before, now), 1);
  }
}

TEST(ResidualRatio, IsCutWhereTheLearningRateJumps) {
  const ResidualRatio down = RatioOf(Feedback::kCorrected, RatesAt(1, 1), RatesAt(0.001, 1));
  EXPECT_EQ(down.factor, 16);
  EXPECT_TRUE(down.cut);
  const ResidualRatio sign = RatioOf(Feedback::kCorrected, RatesAt(1, 1), RatesAt(-1, 1));
  EXPECT_EQ(sign.factor, 0);
  EXPECT_TRUE(sign.cut);
  EXPECT_FALSE(RatioOf(Feedback::kCorrected, RatesAt(0.001, 1), RatesAt(1, 1)).cut);
  EXPECT_FALSE(RatioOf(Feedback::kVanilla, RatesAt(1, 1), RatesAt(0.001, 1)).cut);
}

TEST(ResidualRatio, IsOneWhereRatesSayNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FactorOf(Feedback::kCorrected, {}, RatesAt(0.1, 1)), 1);
  EXPECT_EQ(FactorOf(Feedback::kCorrected, RatesAt(0.1, 1), {}), 1);
  EXPECT_EQ(FactorOf(Feedback::kCorrected, RatesAt(nan, 1), RatesAt(0.1, 0)), 1);
  EXPECT_EQ(FactorOf(Feedback::kVanilla, RatesAt(1, 1e300), RatesAt(1, 1e-300)), 1);
  EXPECT_EQ(FactorOf(Feedback::kVanilla, RatesAt(1, 0x1p40), RatesAt(1, 1)), 0x1p40F);
  EXPECT_EQ(FactorOf(Feedback::kVanilla, RatesAt(1, 0x1p41), RatesAt(1, 1)), 1) << "too much";
}

TEST(Residual, OfALostRoundIsMultipliedAndStaysFinite) {
  std::vector<float> residual = {1, 1e30F, -4, std::numeric_limits<float>::infinity()};
  SkipRound(residual, 1e20F);
  EXPECT_EQ(residual, (std::vector<float>{1e20F, 0, -4e20F, 0}));
}

}  // namespace
}  // namespace bs::codec
