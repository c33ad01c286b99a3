// PauseDetector: a pause of our own is no silence of others.
#include "membership/pause_detector.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ps {
namespace {

using std::chrono::seconds;

constexpr bs::TimePoint kStart{seconds(1000)};

TEST(PauseDetectorTest, ARunningProcessHasNoPause) {
  PauseDetector pause_detector(seconds(1), seconds(30), kStart);
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(15 * i)), bs::TimePoint{});
  }
}

TEST(PauseDetectorTest, AfterAPauseTimeBeginsAnew) {
  PauseDetector pause_detector(seconds(1), seconds(30), kStart);
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(1)), bs::TimePoint{});
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(17)), kStart + seconds(17));
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(18)), kStart + seconds(17));
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(60)), kStart + seconds(60));
}

TEST(PauseDetectorTest, ALongIntervalIsNotTakenForAPause) {
  PauseDetector pause_detector(seconds(20), seconds(30), kStart);
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(25)), bs::TimePoint{});
  EXPECT_EQ(pause_detector.LastPauseEnd(kStart + seconds(70)), kStart + seconds(70));
}

}  // namespace
}  // namespace ps
