// Cuts cover every byte once, and servers get equal shares.
#include "protocol/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace bs::protocol {
namespace {

TEST(Placement, PartitionsCoverEveryByteOnceInOrder) {
  for (const uint64_t size : {1ULL, 63ULL, 64ULL, 65ULL, 1000ULL, 4096ULL, 100001ULL}) {
    for (const uint64_t part : {64ULL, 100ULL, 128ULL, 4096ULL}) {
      uint64_t offset = 0;
      uint32_t index = 0;
      for (const Partition& partition : SplitIntoPartitions(size, part, 64)) {
        EXPECT_EQ(partition.index, index++);
        EXPECT_EQ(partition.offset_bytes, offset);
        EXPECT_GT(partition.size_bytes, 0U);
        EXPECT_LE(partition.size_bytes, part);
        offset += partition.size_bytes;
        if (offset < size) {
          EXPECT_EQ(partition.size_bytes % 64, 0U);
        }
      }
      EXPECT_EQ(offset, size);
    }
  }
}

TEST(Placement, EmptyTensorHasOneEmptyPartition) {
  const std::vector<Partition> partitions = SplitIntoPartitions(0, 64, 64);
  ASSERT_EQ(partitions.size(), 1U);
  EXPECT_EQ(partitions[0].size_bytes, 0U);
}

TEST(Placement, PartitionsAreAsLargeAsTheyMayBe) {
  EXPECT_EQ(SplitIntoPartitions(1000, 250, 64).size(), 6U);  // of 192
  EXPECT_EQ(SplitIntoPartitions(1024, 256, 64).size(), 4U);
}

TEST(Placement, ServersDifferByAtMostTheLargestPartition) {
  std::mt19937_64 random(1);
  for (uint32_t num_servers = 1; num_servers <= 5; ++num_servers) {
    Loads loads(num_servers);
    uint64_t largest = 0;
    uint64_t total = 0;
    for (int tensor = 0; tensor < 50; ++tensor) {
      std::vector<Partition> partitions =
          SplitIntoPartitions(random() % 20000, 1 + 64 * (1 + random() % 20), 64);
      loads.Place(partitions);
      for (const Partition& partition : partitions) {
        EXPECT_LT(partition.server, num_servers);
        largest = std::max(largest, partition.size_bytes);
        total += partition.size_bytes;
      }
      const auto [least, most] = std::minmax_element(loads.bytes().begin(), loads.bytes().end());
      EXPECT_LE(*most - *least, largest);
    }
    uint64_t placed = 0;
    for (const uint64_t bytes : loads.bytes()) placed += bytes;
    EXPECT_EQ(placed, total);
  }
}

TEST(Placement, RemovedPartitionsMakeRoom) {
  Loads loads(2);
  std::vector<Partition> large = SplitIntoPartitions(100, 128, 64);
  std::vector<Partition> small = SplitIntoPartitions(10, 64, 64);
  loads.Place(large);
  loads.Place(small);
  loads.Remove(large);
  loads.Place(large);
  EXPECT_EQ(large[0].server, 0U);
  EXPECT_EQ(loads.bytes()[0], 100U);
  EXPECT_EQ(loads.bytes()[1], 10U);
}

TEST(Placement, SharesAreKeptAtEveryMoment) {
  std::mt19937_64 random(2);
  const std::vector<uint32_t> weights = {10923, 21845, 0, 21845, 10923};
  Loads loads(5, weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  uint64_t total = 0;
  uint64_t largest = 0;
  for (int tensor = 0; tensor < 200; ++tensor) {
    std::vector<Partition> partitions =
        SplitIntoPartitions(random() % 20000, 64 * (1 + random() % 20), 64);
    loads.Place(partitions);
    for (const Partition& partition : partitions) {
      total += partition.size_bytes;
      largest = std::max(largest, partition.size_bytes);
    }
    for (size_t server = 0; server < weights.size(); ++server) {
      const double share = static_cast<double>(total) * weights[server] / sum;
      EXPECT_LE(static_cast<double>(loads.bytes()[server]), share + static_cast<double>(largest));
      EXPECT_GE(static_cast<double>(loads.bytes()[server]),
                share - 2 * static_cast<double>(largest));
    }
  }
  EXPECT_EQ(loads.bytes()[2], 0U);
}

// The placement of a job must not change by a way to say the same.
TEST(Placement, EqualWeightsPlaceAsNoWeightsDo) {
  std::mt19937_64 random(3);
  Loads plain(4);
  Loads weighted(4, {7, 7, 7, 7});
  for (int tensor = 0; tensor < 100; ++tensor) {
    std::vector<Partition> partitions =
        SplitIntoPartitions(random() % 5000, 64 * (1 + random() % 9), 64);
    std::vector<Partition> same = partitions;
    plain.Place(partitions);
    weighted.Place(same);
    EXPECT_EQ(EncodeServers(partitions), EncodeServers(same));
    if (tensor % 3 == 0) {
      plain.Remove(partitions);
      weighted.Remove(same);
    }
  }
}

TEST(Placement, LowestRankOfSeveralEquallyLoadedIsTaken) {
  Loads loads(3);
  std::vector<Partition> partitions = SplitIntoPartitions(256, 64, 64);
  loads.Place(partitions);
  EXPECT_EQ(partitions[0].server, 0U);
  EXPECT_EQ(partitions[1].server, 1U);
  EXPECT_EQ(partitions[2].server, 2U);
  EXPECT_EQ(partitions[3].server, 0U);
}

TEST(Placement, HomesOfSmallAndRegularKeysAreSpread) {
  constexpr uint32_t kServers = 4;
  for (const Key step : {1ULL, 2ULL, 4ULL, 1024ULL}) {
    std::vector<int> keys(kServers, 0);
    for (Key i = 0; i < 1000; ++i) ++keys.at(HomeServer(i * step, kServers));
    for (const int count : keys) EXPECT_NEAR(count, 250, 75);
  }
}

TEST(Placement, ServersSurviveTheWire) {
  std::vector<Partition> partitions = SplitIntoPartitions(64 * 4, 64, 64);
  const uint32_t servers[] = {0, 1, 300, 65535};
  for (size_t i = 0; i < 4; ++i) partitions[i].server = servers[i];
  const std::vector<std::byte> bytes = EncodeServers(partitions);
  ASSERT_EQ(bytes.size(), 8U);
  EXPECT_EQ(std::to_integer<int>(bytes[4]), 300 & 0xff);
  EXPECT_EQ(std::to_integer<int>(bytes[5]), 300 >> 8);
  std::vector<Partition> read = SplitIntoPartitions(64 * 4, 64, 64);
  ASSERT_TRUE(DecodeServers(bytes, 65536, read).ok());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(read[i].server, servers[i]);
}

TEST(Placement, ServersThatDoNotFitAreRefused) {
  std::vector<Partition> partitions = SplitIntoPartitions(64 * 2, 64, 64);
  const std::vector<std::byte> bytes(4, std::byte{1});  // server 257
  EXPECT_EQ(DecodeServers(bytes, 257, partitions).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(DecodeServers(bytes, 258, partitions).ok());
  for (const size_t wrong : {0U, 2U, 3U, 5U, 6U}) {
    const std::vector<std::byte> other(wrong);
    EXPECT_EQ(DecodeServers(other, 300, partitions).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace bs::protocol
