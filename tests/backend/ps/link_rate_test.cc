// The rate of acknowledgements, and the pieces that suit it.
#include "backend/ps/link_rate.h"

#include <gtest/gtest.h>

#include <chrono>

#include "sim/sim_executor.h"

namespace bs::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kPiece = 128 * kKiB;

Pieces For(double megabytes_per_second, uint32_t num_servers, Duration round_trip = {}) {
  return PiecesFor({.bytes_per_second = megabytes_per_second * 1e6, .round_trip = round_trip},
                   num_servers);
}

TEST(PiecesFor, ALinkHasThoseThatItCarriesInHalfAMillisecond) {
  EXPECT_EQ(For(119, 2), (Pieces{64 * kKiB, 128 * kKiB})) << "1 Gbit/s";
  EXPECT_EQ(For(238, 2), (Pieces{128 * kKiB, 256 * kKiB}));
  EXPECT_EQ(For(1190, 2), (Pieces{256 * kKiB, 512 * kKiB}));
  EXPECT_EQ(For(1e6, 2), (Pieces{256 * kKiB, 512 * kKiB})) << "no larger ones";
  EXPECT_EQ(For(60, 2), (Pieces{32 * kKiB, 64 * kKiB}));
  EXPECT_EQ(For(12, 2), (Pieces{32 * kKiB, 64 * kKiB})) << "no smaller ones";
  EXPECT_EQ(For(0.001, 2), (Pieces{32 * kKiB, 64 * kKiB}));
}

TEST(PiecesFor, TheNearestSizeByItsRatioIsTaken) {
  EXPECT_EQ(For(119 * 1.35, 2).partition_bytes, 64 * kKiB);
  EXPECT_EQ(For(119 * 1.5, 2).partition_bytes, 128 * kKiB);
  EXPECT_EQ(For(119 / 1.35, 2).partition_bytes, 64 * kKiB);
  EXPECT_EQ(For(119 / 1.5, 2).partition_bytes, 32 * kKiB);
}

TEST(PiecesFor, EachServerHasTwoInFlight) {
  for (const uint32_t num_servers : {1U, 3U, 8U}) {
    EXPECT_EQ(For(119, num_servers), (Pieces{64 * kKiB, 128 * kKiB})) << num_servers;
  }
}

TEST(PiecesFor, SharedMemoryHasMoreInFlight) {
  MeasuredLink link{.bytes_per_second = 1e9, .round_trip = {}, .shares_memory = true};
  EXPECT_EQ(PiecesFor(link, 1), (Pieces{256 * kKiB, 1024 * kKiB}));
  link.bytes_per_second = 119e6;
  EXPECT_EQ(PiecesFor(link, 1), (Pieces{64 * kKiB, 256 * kKiB}));
}

TEST(PiecesFor, ALongWayHasMoreInFlight) {
  EXPECT_EQ(For(119, 2, microseconds(500)), For(119, 2));
  EXPECT_EQ(For(119, 2, milliseconds(10)).credit_bytes, 19 * 64 * kKiB) << "1.19 MB";
  EXPECT_EQ(For(1190, 1, std::chrono::hours(1)).credit_bytes, 65536 * kKiB);
}

class LinkRateTest : public testing::Test {
 protected:
  explicit LinkRateTest(uint32_t num_servers = 1) : rate_(&executor_, num_servers) {}
  // So many pieces are pushed, `at_once` of them before the first answer, and each is answered
  // `each` after the one before it, or after it was pushed.
  void Push(int pieces, int at_once, Duration each, Duration first = {}) {
    for (int i = 0; i < at_once; ++i) rate_.Started(kPiece);
    Wait(first);
    for (int i = 0; i < pieces; ++i) {
      Wait(each);
      rate_.Answered(kPiece);
      if (i + at_once < pieces) rate_.Started(kPiece);
    }
  }
  void Wait(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  LinkRate rate_;
};

TEST_F(LinkRateTest, SaysNothingBeforeItKnowsEnough) {
  EXPECT_FALSE(rate_.measured());
  Push(35, 4, milliseconds(1));
  EXPECT_FALSE(rate_.measured()) << "eight samples are 4 MiB, of which the first has eight pieces";
  Push(1, 1, milliseconds(1));
  EXPECT_FALSE(rate_.measured()) << "one that goes alone is no sample";
  Push(8, 4, milliseconds(1));
  EXPECT_TRUE(rate_.measured());
}

TEST_F(LinkRateTest, IsThatOfAcknowledgementsWhileMoreIsUnderWay) {
  Push(100, 4, milliseconds(1), microseconds(200));
  ASSERT_TRUE(rate_.measured());
  EXPECT_NEAR(rate_.measured()->bytes_per_second, kPiece * 1e3, 1) << "the median of the samples";
  EXPECT_NEAR(static_cast<double>(rate_.measured()->round_trip.count()), 200e3, 1e3)
      << "without the time that the piece itself takes";
}

TEST_F(LinkRateTest, PausesBetweenTensorsAreNoneOfTheLinks) {
  for (int i = 0; i < 20; ++i) {
    Push(10, 4, milliseconds(1));
    Wait(std::chrono::seconds(1));
  }
  ASSERT_TRUE(rate_.measured());
  EXPECT_NEAR(rate_.measured()->bytes_per_second, kPiece * 1e3, 1);
}

TEST_F(LinkRateTest, PiecesThatGoOneByOneOrInSmallTensorsSayNothingOfTheRate) {
  Push(1000, 1, milliseconds(1));
  for (int i = 0; i < 200; ++i) Push(7, 4, milliseconds(1));
  EXPECT_FALSE(rate_.measured());
}

// Three pieces follow each other in each tensor, on a link that carries one in 10 ms.
class SmallTensors : public LinkRateTest {
 protected:
  explicit SmallTensors(uint32_t num_servers = 1) : LinkRateTest(num_servers) {}
  void Ask(uint32_t server, Duration idle) {
    const TimePoint asked = rate_.Asked();
    Wait(idle);
    rate_.Told(server, asked);
  }
  void PushSmallTensors(int number = 20) {
    for (int i = 0; i < number; ++i) Push(3, 2, milliseconds(10));
  }
};

TEST_F(SmallTensors, AreEnoughWhereTheyTakeFarLongerThanAnIdleNetworkToAnswer) {
  Ask(0, milliseconds(4));
  Ask(0, microseconds(300));
  PushSmallTensors(10);
  EXPECT_FALSE(rate_.measured()) << "not 4 MiB";
  PushSmallTensors(1);
  ASSERT_TRUE(rate_.measured());
  EXPECT_NEAR(rate_.measured()->bytes_per_second, kPiece * 3 / 0.0297, 1);
  EXPECT_EQ(rate_.measured()->round_trip, microseconds(300));
}

TEST_F(SmallTensors, AreNotWhereTheyDoNotOrNobodyHasAsked) {
  PushSmallTensors();
  EXPECT_FALSE(rate_.measured());
  Ask(0, milliseconds(4));
  PushSmallTensors();
  EXPECT_FALSE(rate_.measured());
}

TEST_F(SmallTensors, AreNotIfOneOfThemWasQuick) {
  Ask(0, microseconds(300));
  Push(3, 2, microseconds(100));  // the others came in bad moments
  PushSmallTensors();
  EXPECT_FALSE(rate_.measured());
}

TEST_F(SmallTensors, AreNotIfTheyAreTiny) {
  Ask(0, microseconds(300));
  for (int i = 0; i < 1000; ++i) Push(1, 1, milliseconds(10));
  EXPECT_FALSE(rate_.measured());
}

class SmallTensorsOnTwoServers : public SmallTensors {
 protected:
  SmallTensorsOnTwoServers() : SmallTensors(2) {}
};

TEST_F(SmallTensorsOnTwoServers, NeedAnAnswerOfEveryServer) {
  Ask(1, microseconds(300));
  PushSmallTensors();
  EXPECT_FALSE(rate_.measured());
  Ask(0, milliseconds(4));
  EXPECT_FALSE(rate_.measured()) << "the slower one counts";
  Ask(0, milliseconds(1));
  EXPECT_TRUE(rate_.measured());
}

TEST_F(LinkRateTest, AFewMomentsInWhichNobodyReadChangeNothing) {
  for (int i = 0; i < 8; ++i) {
    Push(16, 4, milliseconds(1));
    if (i % 3 == 0) Push(12, 4, milliseconds(1), milliseconds(50));
  }
  ASSERT_TRUE(rate_.measured());
  EXPECT_NEAR(rate_.measured()->bytes_per_second, kPiece * 1e3, kPiece * 50.0);
}

TEST_F(LinkRateTest, AnswersThatComeTogetherAreNotTakenForAFastLink) {
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 8; ++j) rate_.Started(kPiece);
    for (int turn = 0; turn < 2; ++turn) {
      Wait(milliseconds(4));
      for (int j = 0; j < 4; ++j) rate_.Answered(kPiece);
    }
  }
  ASSERT_TRUE(rate_.measured());
  EXPECT_LT(rate_.measured()->bytes_per_second, kPiece * 1e3 * 1.2);
}

TEST_F(LinkRateTest, WhatWasUnderWayWhenItStoppedIsLeftAlone) {
  Push(100, 4, milliseconds(1));
  rate_.Started(kPiece);
  rate_.Stop();
  rate_.Answered(kPiece);
  rate_.Answered(kPiece);
  EXPECT_TRUE(rate_.stopped());
  EXPECT_EQ(rate_.answered_bytes(), 100 * kPiece);
}

}  // namespace
}  // namespace bs::worker
