// Attention: a pause of our own is no silence of others.
#include "membership/attention.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ps {
namespace {

using std::chrono::seconds;

constexpr bs::TimePoint kStart{seconds(1000)};

TEST(AttentionTest, WhoRunsHasHeardEverybodyAllTheTime) {
  Attention attention(seconds(1), seconds(30), kStart);
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(attention.Since(kStart + seconds(15 * i)), bs::TimePoint{});
  }
}

TEST(AttentionTest, AfterAPauseTimeBeginsAnew) {
  Attention attention(seconds(1), seconds(30), kStart);
  EXPECT_EQ(attention.Since(kStart + seconds(1)), bs::TimePoint{});
  EXPECT_EQ(attention.Since(kStart + seconds(17)), kStart + seconds(17));
  EXPECT_EQ(attention.Since(kStart + seconds(18)), kStart + seconds(17));
  EXPECT_EQ(attention.Since(kStart + seconds(60)), kStart + seconds(60));
}

TEST(AttentionTest, WhoLooksSeldomDoesNotTakeThatForAPause) {
  Attention attention(seconds(20), seconds(30), kStart);
  EXPECT_EQ(attention.Since(kStart + seconds(25)), bs::TimePoint{});
  EXPECT_EQ(attention.Since(kStart + seconds(70)), kStart + seconds(70));
}

}  // namespace
}  // namespace ps
