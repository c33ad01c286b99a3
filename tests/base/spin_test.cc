// Spin: after short pauses, and not where it was for nothing.
#include "base/spin.h"

#include <gtest/gtest.h>

#include <chrono>

namespace bs {
namespace {

using std::chrono::microseconds;

constexpr Duration kLongest = microseconds(200);
constexpr Duration kShort = microseconds(200);
constexpr Duration kLong = microseconds(201);

class SpinTest : public testing::Test {
 protected:
  void Pause(int times, Duration pause = kShort) {
    for (int i = 0; i < times; ++i) spin_.Paused(pause);
  }
  bool spins() const { return spin_.window() == kLongest; }
  // Short pauses until it spins, counted from a long one.
  int Wanted() {
    int count = 0;
    for (; !spins(); ++count) Pause(1);
    return count;
  }

  Spin spin_{kLongest};
};

TEST_F(SpinTest, BeginsAfterAFewShortPausesInARow) {
  EXPECT_EQ(spin_.window(), Duration::zero());
  Pause(Spin::kFewest - 1);
  Pause(1, kLong);
  Pause(Spin::kFewest - 1);
  EXPECT_EQ(spin_.window(), Duration::zero()) << "they are not in a row";
  Pause(1);
  EXPECT_EQ(spin_.window(), kLongest);
}

TEST_F(SpinTest, EndsWithALongPause) {
  Wanted();
  Pause(1000);
  EXPECT_TRUE(spins());
  Pause(1, kLong);
  EXPECT_FALSE(spins());
}

TEST_F(SpinTest, DoesNotBehindMuchWork) {
  const Duration most = kLongest / Spin::kWorkShare;
  Wanted();
  spin_.Worked(most);
  EXPECT_TRUE(spins());
  spin_.Worked(most + Duration(1));
  EXPECT_FALSE(spins());
  Pause(Spin::kFewest - 1);
  EXPECT_FALSE(spins()) << "the short pauses are counted from there";
  Pause(1);
  EXPECT_TRUE(spins()) << "and no more of them are wanted: it did not spin for nothing";
}

TEST_F(SpinTest, WantsTwiceAsManyWhenItWasForNothing) {
  EXPECT_EQ(Wanted(), Spin::kFewest);
  for (int wanted = Spin::kFewest; wanted < Spin::kMost;) {
    Pause(1, kLong);
    wanted *= 2;
    ASSERT_EQ(Wanted(), wanted);
  }
  Pause(1, kLong);
  EXPECT_EQ(Wanted(), Spin::kMost) << "no more than that";
}

TEST_F(SpinTest, LongPausesInWhichItSleptCostNothing) {
  Pause(1000, kLong);
  EXPECT_EQ(Wanted(), Spin::kFewest);
}

TEST_F(SpinTest, WantsFewerAgainWhenItWasRightForAWhile) {
  for (int i = 0; i < 3; ++i) {
    Wanted();
    Pause(1, kLong);
  }
  ASSERT_EQ(Wanted(), 8 * Spin::kFewest);
  Pause(Spin::kRight);  // 4 times as many are enough
  Pause(Spin::kRight);  // 2 times
  Pause(1, kLong);      // 4 again
  EXPECT_EQ(Wanted(), 4 * Spin::kFewest);
  Pause(Spin::kRight - 1);
  Pause(1, kLong);
  EXPECT_EQ(Wanted(), 8 * Spin::kFewest) << "not right for long enough";
  Pause(100 * Spin::kRight);
  Pause(1, kLong);
  EXPECT_EQ(Wanted(), 2 * Spin::kFewest) << "never fewer than the fewest, twice as many of which";
}

TEST(SpinOfNoTime, NeverSpins) {
  Spin spin{Duration::zero()};
  EXPECT_FALSE(spin.enabled());
  for (int i = 0; i < 100; ++i) spin.Paused(Duration::zero());
  EXPECT_EQ(spin.window(), Duration::zero());
}

}  // namespace
}  // namespace bs
