// What counts as a step, whatever comes beside the largest tensor.
#include "worker/steps.h"

#include <gtest/gtest.h>

namespace bs::worker {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint() + milliseconds(1000 + ms); }

TEST(Steps, AreRoundsOfTheLargestTensor) {
  Steps steps;
  for (int step = 0; step < 3; ++step) {
    steps.Summed(2, 8, At(100 * step));
    steps.Summed(1, 64, At(100 * step + 5));
    steps.Summed(2, 8, At(100 * step + 7));  // used twice
    steps.Summed(3, 64, At(100 * step + 9));
  }
  EXPECT_EQ(steps.count(), 3U);
  EXPECT_EQ(steps.tensors(), 12U);
  EXPECT_EQ(steps.latest(), milliseconds(100));
}

TEST(Steps, TheFirstHasNoLength) {
  Steps steps;
  EXPECT_EQ(steps.count(), 0U);
  steps.Summed(1, 64, At(0));
  EXPECT_EQ(steps.count(), 1U);
  EXPECT_EQ(steps.latest(), Duration());
}

TEST(Steps, ALargerTensorThatComesLaterTakesOver) {
  Steps steps;
  for (int step = 0; step < 2; ++step) steps.Summed(1, 64, At(step));
  steps.Summed(9, 128, At(10));
  EXPECT_EQ(steps.count(), 2U);  // the step it is of has counted
  EXPECT_EQ(steps.latest(), Duration());
  steps.Summed(1, 64, At(20));
  steps.Summed(9, 128, At(30));
  EXPECT_EQ(steps.count(), 3U);
  EXPECT_EQ(steps.latest(), milliseconds(20));
}

}  // namespace
}  // namespace bs::worker
