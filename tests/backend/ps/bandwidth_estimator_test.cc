// The rate of acknowledgements, and the partitions that suit it.
#include "backend/ps/bandwidth_estimator.h"

#include <gtest/gtest.h>

#include <chrono>

#include "sim/sim_executor.h"

namespace bs::backend {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kPartition = 128 * kKiB;

PartitionAndCredit For(double megabytes_per_second, uint32_t num_servers,
                       Duration round_trip = {}) {
  return PartitionAndCreditFor(
      {.bytes_per_second = megabytes_per_second * 1e6, .round_trip = round_trip}, num_servers);
}

TEST(PartitionAndCreditFor, ALinkCarriesAPartitionInHalfAMillisecond) {
  EXPECT_EQ(For(119, 2), (PartitionAndCredit{64 * kKiB, 128 * kKiB})) << "1 Gbit/s";
  EXPECT_EQ(For(238, 2), (PartitionAndCredit{128 * kKiB, 256 * kKiB}));
  EXPECT_EQ(For(1190, 2), (PartitionAndCredit{256 * kKiB, 512 * kKiB}));
  EXPECT_EQ(For(1e6, 2), (PartitionAndCredit{256 * kKiB, 512 * kKiB})) << "no larger ones";
  EXPECT_EQ(For(60, 2), (PartitionAndCredit{32 * kKiB, 64 * kKiB}));
  EXPECT_EQ(For(12, 2), (PartitionAndCredit{32 * kKiB, 64 * kKiB})) << "no smaller ones";
  EXPECT_EQ(For(0.001, 2), (PartitionAndCredit{32 * kKiB, 64 * kKiB}));
}

TEST(PartitionAndCreditFor, TheNearestSizeByItsRatioIsTaken) {
  EXPECT_EQ(For(119 * 1.35, 2).partition_bytes, 64 * kKiB);
  EXPECT_EQ(For(119 * 1.5, 2).partition_bytes, 128 * kKiB);
  EXPECT_EQ(For(119 / 1.35, 2).partition_bytes, 64 * kKiB);
  EXPECT_EQ(For(119 / 1.5, 2).partition_bytes, 32 * kKiB);
}

TEST(PartitionAndCreditFor, EachServerHasTwoInFlight) {
  for (const uint32_t num_servers : {1U, 2U, 3U}) {
    EXPECT_EQ(For(119, num_servers), (PartitionAndCredit{64 * kKiB, 128 * kKiB})) << num_servers;
  }
}

TEST(PartitionAndCreditFor, ManyServersHaveSmallerPartitions) {
  EXPECT_EQ(For(1190, 16), (PartitionAndCredit{128 * kKiB, 256 * kKiB})) << "10 Gbit/s";
  EXPECT_EQ(For(1190, 32), (PartitionAndCredit{64 * kKiB, 128 * kKiB}));
  EXPECT_EQ(For(1190, 1024), (PartitionAndCredit{64 * kKiB, 128 * kKiB})) << "0.05 ms at least";
  EXPECT_EQ(For(119, 8), (PartitionAndCredit{32 * kKiB, 64 * kKiB})) << "1 Gbit/s";
  EXPECT_EQ(For(60, 16), (PartitionAndCredit{32 * kKiB, 64 * kKiB}));
  EXPECT_EQ(For(60, 17), (PartitionAndCredit{16 * kKiB, 64 * kKiB})) << "credit does not shrink";
}

TEST(PartitionAndCreditFor, SlowLinksToSeveralServersHaveSmallerPartitions) {
  EXPECT_EQ(For(12, 3), (PartitionAndCredit{32 * kKiB, 64 * kKiB})) << "few servers";
  EXPECT_EQ(For(60, 4), (PartitionAndCredit{32 * kKiB, 64 * kKiB})) << "500 Mbit/s";
  EXPECT_EQ(For(30, 4), (PartitionAndCredit{16 * kKiB, 64 * kKiB})) << "250 Mbit/s";
  EXPECT_EQ(For(24, 4), (PartitionAndCredit{8 * kKiB, 32 * kKiB})) << "200 Mbit/s";
  EXPECT_EQ(For(3, 4), (PartitionAndCredit{8 * kKiB, 32 * kKiB})) << "no smaller ones";
  EXPECT_EQ(For(0, 1024), (PartitionAndCredit{8 * kKiB, 32 * kKiB}));
}

TEST(PartitionAndCreditFor, HostsThatAddUpHavePartitionsTwiceAsLarge) {
  const auto on_hosts = [](double megabytes_per_second, uint32_t num_servers) {
    return PartitionAndCreditFor(
        {.bytes_per_second = megabytes_per_second * 1e6, .round_trip = {}, .adds_up = true},
        num_servers);
  };
  EXPECT_EQ(on_hosts(119, 2), (PartitionAndCredit{128 * kKiB, 256 * kKiB}));
  EXPECT_EQ(on_hosts(119, 4), (PartitionAndCredit{128 * kKiB, 256 * kKiB}));
  EXPECT_EQ(on_hosts(119, 16), (PartitionAndCredit{32 * kKiB, 64 * kKiB}));
  EXPECT_EQ(on_hosts(1190, 2), (PartitionAndCredit{256 * kKiB, 512 * kKiB})) << "no larger ones";
}

TEST(PartitionAndCreditFor, SharedMemoryHasMoreInFlight) {
  Bandwidth bandwidth{.bytes_per_second = 1e9, .round_trip = {}, .shares_memory = true};
  EXPECT_EQ(PartitionAndCreditFor(bandwidth, 1), (PartitionAndCredit{256 * kKiB, 1024 * kKiB}));
  bandwidth.bytes_per_second = 119e6;
  EXPECT_EQ(PartitionAndCreditFor(bandwidth, 1), (PartitionAndCredit{64 * kKiB, 256 * kKiB}));
}

TEST(PartitionAndCreditFor, ALongWayHasMoreInFlight) {
  EXPECT_EQ(For(119, 2, microseconds(500)), For(119, 2));
  EXPECT_EQ(For(119, 2, milliseconds(10)).credit_bytes, 19 * 64 * kKiB) << "1.19 MB";
  EXPECT_EQ(For(1190, 1, std::chrono::hours(1)).credit_bytes, 65536 * kKiB);
}

class BandwidthEstimatorTest : public testing::Test {
 protected:
  explicit BandwidthEstimatorTest(uint32_t num_servers = 1) : estimator_(&executor_, num_servers) {}
  // So many partitions are pushed, `at_once` of them before the first acknowledgement.  Each is
  // acknowledged `each` after the one before it, or after it was pushed.
  void Push(int partitions, int at_once, Duration each, Duration first = {}) {
    for (int i = 0; i < at_once; ++i) estimator_.PartitionSent(kPartition);
    Wait(first);
    for (int i = 0; i < partitions; ++i) {
      Wait(each);
      estimator_.PartitionAcknowledged(kPartition);
      if (i + at_once < partitions) estimator_.PartitionSent(kPartition);
    }
  }
  void Wait(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  BandwidthEstimator estimator_;
};

TEST_F(BandwidthEstimatorTest, SaysNothingBeforeItKnowsEnough) {
  EXPECT_FALSE(estimator_.measured());
  Push(35, 4, milliseconds(1));
  EXPECT_FALSE(estimator_.measured())
      << "eight samples are 4 MiB, of which the first has eight partitions";
  Push(1, 1, milliseconds(1));
  EXPECT_FALSE(estimator_.measured()) << "one that goes alone is no sample";
  Push(8, 4, milliseconds(1));
  EXPECT_TRUE(estimator_.measured());
}

TEST_F(BandwidthEstimatorTest, IsThatOfAcknowledgementsWhileMoreIsUnderWay) {
  Push(100, 4, milliseconds(1), microseconds(200));
  ASSERT_TRUE(estimator_.measured());
  EXPECT_NEAR(estimator_.measured()->bytes_per_second, kPartition * 1e3, 1)
      << "the median of the samples";
  EXPECT_NEAR(static_cast<double>(estimator_.measured()->round_trip.count()), 200e3, 1e3)
      << "without the time that the partition itself takes";
}

TEST_F(BandwidthEstimatorTest, PausesBetweenTensorsAreNoneOfTheLinks) {
  for (int i = 0; i < 20; ++i) {
    Push(10, 4, milliseconds(1));
    Wait(std::chrono::seconds(1));
  }
  ASSERT_TRUE(estimator_.measured());
  EXPECT_NEAR(estimator_.measured()->bytes_per_second, kPartition * 1e3, 1);
}

TEST_F(BandwidthEstimatorTest, PartitionsThatGoOneByOneOrInSmallTensorsSayNothingOfTheRate) {
  Push(1000, 1, milliseconds(1));
  for (int i = 0; i < 200; ++i) Push(7, 4, milliseconds(1));
  EXPECT_FALSE(estimator_.measured());
}

// Three partitions follow each other in each tensor, on a link that carries one in 10 ms.
class SmallTensors : public BandwidthEstimatorTest {
 protected:
  explicit SmallTensors(uint32_t num_servers = 1) : BandwidthEstimatorTest(num_servers) {}
  void Ask(uint32_t server, Duration idle) {
    const TimePoint sent = estimator_.RequestSent();
    Wait(idle);
    estimator_.ResponseCame(server, sent);
  }
  void PushSmallTensors(int number = 20) {
    for (int i = 0; i < number; ++i) Push(3, 2, milliseconds(10));
  }
};

TEST_F(SmallTensors, AreEnoughWhereTheyTakeFarLongerThanAnIdleNetworkToAnswer) {
  Ask(0, milliseconds(4));
  Ask(0, microseconds(300));
  PushSmallTensors(10);
  EXPECT_FALSE(estimator_.measured()) << "not 4 MiB";
  PushSmallTensors(1);
  ASSERT_TRUE(estimator_.measured());
  EXPECT_NEAR(estimator_.measured()->bytes_per_second, kPartition * 3 / 0.0297, 1);
  EXPECT_EQ(estimator_.measured()->round_trip, microseconds(300));
}

TEST_F(SmallTensors, AreNotEnoughWithASlowAnswerOrNoAnswer) {
  PushSmallTensors();
  EXPECT_FALSE(estimator_.measured());
  Ask(0, milliseconds(4));
  PushSmallTensors();
  EXPECT_FALSE(estimator_.measured());
}

TEST_F(SmallTensors, AreNotIfOneOfThemWasQuick) {
  Ask(0, microseconds(300));
  Push(3, 2, microseconds(100));  // the others came in bad moments
  PushSmallTensors();
  EXPECT_FALSE(estimator_.measured());
}

TEST_F(SmallTensors, AreNotIfTheyAreTiny) {
  Ask(0, microseconds(300));
  for (int i = 0; i < 1000; ++i) Push(1, 1, milliseconds(10));
  EXPECT_FALSE(estimator_.measured());
}

class SmallTensorsOnTwoServers : public SmallTensors {
 protected:
  SmallTensorsOnTwoServers() : SmallTensors(2) {}
};

TEST_F(SmallTensorsOnTwoServers, NeedAnAnswerOfEveryServer) {
  Ask(1, microseconds(300));
  PushSmallTensors();
  EXPECT_FALSE(estimator_.measured());
  Ask(0, milliseconds(4));
  EXPECT_FALSE(estimator_.measured()) << "the slower one counts";
  Ask(0, milliseconds(1));
  EXPECT_TRUE(estimator_.measured());
}

TEST_F(BandwidthEstimatorTest, AFewMomentsInWhichTheWorkerDoesNotReadChangeNothing) {
  for (int i = 0; i < 8; ++i) {
    Push(16, 4, milliseconds(1));
    if (i % 3 == 0) Push(12, 4, milliseconds(1), milliseconds(50));
  }
  ASSERT_TRUE(estimator_.measured());
  EXPECT_NEAR(estimator_.measured()->bytes_per_second, kPartition * 1e3, kPartition * 50.0);
}

TEST_F(BandwidthEstimatorTest, AnswersThatComeTogetherAreNotTakenForAFastLink) {
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 8; ++j) estimator_.PartitionSent(kPartition);
    for (int turn = 0; turn < 2; ++turn) {
      Wait(milliseconds(4));
      for (int j = 0; j < 4; ++j) estimator_.PartitionAcknowledged(kPartition);
    }
  }
  ASSERT_TRUE(estimator_.measured());
  EXPECT_LT(estimator_.measured()->bytes_per_second, kPartition * 1e3 * 1.2);
}

TEST_F(BandwidthEstimatorTest, PartitionsInFlightWhenItStopsAreNotCounted) {
  Push(100, 4, milliseconds(1));
  estimator_.PartitionSent(kPartition);
  estimator_.Stop();
  estimator_.PartitionAcknowledged(kPartition);
  estimator_.PartitionAcknowledged(kPartition);
  EXPECT_TRUE(estimator_.stopped());
  EXPECT_EQ(estimator_.acknowledged_bytes(), 100 * kPartition);
}

}  // namespace
}  // namespace bs::backend
