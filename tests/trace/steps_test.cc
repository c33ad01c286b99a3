// Steps follow the largest tensor, whatever comes beside it.
#include "trace/steps.h"

#include <gtest/gtest.h>

namespace bs::trace {
namespace {

using std::chrono::milliseconds;

TimePoint Moment(int ms) { return TimePoint() + milliseconds(1000 + ms); }

TEST(Steps, AreRoundsOfTheLargestTensor) {
  Steps steps;
  for (int step = 0; step < 3; ++step) {
    steps.Summed(2, 8, Moment(100 * step));
    steps.Summed(1, 64, Moment(100 * step + 5));
    steps.Summed(2, 8, Moment(100 * step + 7));  // used twice
    steps.Summed(3, 64, Moment(100 * step + 9));
  }
  EXPECT_EQ(steps.count(), 3U);
  EXPECT_EQ(steps.tensors(), 12U);
  EXPECT_EQ(steps.latest(), milliseconds(100));
}

TEST(Steps, TheFirstHasNoLength) {
  Steps steps;
  EXPECT_EQ(steps.count(), 0U);
  steps.Summed(1, 64, Moment(0));
  EXPECT_EQ(steps.count(), 1U);
  EXPECT_EQ(steps.latest(), Duration());
}

TEST(Steps, ALargerTensorThatComesLaterTakesOver) {
  Steps steps;
  for (int step = 0; step < 2; ++step) steps.Summed(1, 64, Moment(step));
  steps.Summed(9, 128, Moment(10));
  EXPECT_EQ(steps.count(), 2U);  // the step it is of has counted
  EXPECT_EQ(steps.latest(), Duration());
  steps.Summed(1, 64, Moment(20));
  steps.Summed(9, 128, Moment(30));
  EXPECT_EQ(steps.count(), 3U);
  EXPECT_EQ(steps.latest(), milliseconds(20));
}

TEST(Steps, CountOnWhenTheLargestIsOutOfUse) {
  Steps steps;
  int ms = 0;
  const auto go = [&](int times, bool with_largest) {
    for (int i = 0; i < times; ++i) {
      ms += 10;
      steps.Summed(1, 8, Moment(ms));
      steps.Summed(2, 32, Moment(ms + 1));
      if (with_largest) steps.Summed(3, 64, Moment(ms + 2));
    }
  };
  go(3, true);
  EXPECT_EQ(steps.count(), 3U);
  for (uint64_t batch = 0; batch < Steps::kFrozen * 3 / 2; ++batch) {
    steps.Summed(9, 4, Moment(ms + 3));  // an evaluation sums up its losses
  }
  EXPECT_EQ(steps.count(), 3U);
  go(1, true);
  EXPECT_EQ(steps.count(), 4U);
  go(1, true);
  go(Steps::kFrozen * 3 / 2, false);  // some models use their largest tensor now and then
  EXPECT_EQ(steps.count(), 5U);
  go(5, false);
  EXPECT_EQ(steps.count(), 5U + 5);
  EXPECT_EQ(steps.latest(), milliseconds(10));
  go(4, true);  // and in use again: it takes over
  EXPECT_EQ(steps.count(), 5U + 5 + 4);
  EXPECT_EQ(steps.latest(), milliseconds(10));
}

TEST(Steps, TheFirstStepMayHaveManyTensors) {
  Steps steps;
  for (int step = 0; step < 3; ++step) {
    steps.Summed(1, 64, Moment(1000 * step));
    for (Key i = 0; i < 500; ++i) steps.Summed(2 + i, 8, Moment(1000 * step + static_cast<int>(i)));
  }
  EXPECT_EQ(steps.count(), 3U);
  EXPECT_EQ(steps.latest(), milliseconds(1000));
}

TEST(Steps, KeepsTheLengthsOfTheLatest) {
  Steps steps;
  EXPECT_TRUE(steps.kept().empty());
  for (int step = 1; step <= 100; ++step) steps.Summed(1, 8, Moment(step * step));
  const std::vector<StepTime> kept = steps.kept();
  ASSERT_EQ(kept.size(), Steps::kKept);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].number, 100 - Steps::kKept + 1 + i);
    EXPECT_EQ(kept[i].length, milliseconds(2 * kept[i].number - 1));
  }
}

TEST(Steps, KeepsNoLengthOfTheFirst) {
  Steps steps;
  steps.Summed(1, 8, Moment(0));
  EXPECT_TRUE(steps.kept().empty());
  steps.Summed(1, 8, Moment(7));
  ASSERT_EQ(steps.kept().size(), 1U);
  EXPECT_EQ(steps.kept()[0].number, 2U);
}

}  // namespace
}  // namespace bs::trace
