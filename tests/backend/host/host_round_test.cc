// Contributions in any order of arrival.
#include "backend/host/host_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace bs::backend {
namespace {

constexpr float kLarge = 16777216;

protocol::PartitionShape OneFloat() { return {.offset_bytes = 0, .size_bytes = 4, .dtype = 0}; }

ps::Frame FrameOf(float value) {
  std::vector<std::byte> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return ps::Frame::Copy(bytes);
}

float SumIn(const HostRound& round) {
  float sum = 0;
  std::memcpy(&sum, round.sum()->data(), sizeof(sum));
  return sum;
}

// (1 + 2^24) - 2^24 is 0, any other order is 1.
TEST(HostRound, ContributionsThatWaitAreAddedByRank) {
  SpareSums spares(3);
  const std::vector<float> values = {1, kLarge, -kLarge};
  std::vector<size_t> order = {0, 1, 2};
  do {
    HostRound round(3, &spares, OneFloat());
    for (const size_t place : order) {
      EXPECT_FALSE(round.complete());
      round.Take(place, FrameOf(values[place]), round.ComesEarly(place));
      EXPECT_TRUE(round.has(place));
    }
    EXPECT_TRUE(round.complete());
    EXPECT_EQ(round.held_bytes(), 0U);
    EXPECT_EQ(SumIn(round), 0) << order[0] << order[1] << order[2];
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(HostRound, ContributionsThatDoNotWaitAreAddedAsTheyCome) {
  SpareSums spares(3);
  HostRound round(3, &spares, OneFloat());
  round.Take(2, FrameOf(-kLarge), false);
  round.Take(1, FrameOf(kLarge), false);
  EXPECT_FALSE(round.complete());
  round.Take(0, FrameOf(1), false);
  EXPECT_TRUE(round.complete());
  EXPECT_EQ(SumIn(round), 1);
}

TEST(HostRound, TwoWorkersNeedNoOrder) {
  SpareSums spares(3);
  EXPECT_FALSE(HostRound(2, &spares, OneFloat()).ComesEarly(1));
  EXPECT_TRUE(HostRound(3, &spares, OneFloat()).ComesEarly(1));
  EXPECT_FALSE(HostRound(3, &spares, OneFloat()).ComesEarly(0));
}

TEST(HostRound, FrameIsReleasedWhenItIsInTheSum) {
  SpareSums spares(3);
  HostRound round(3, &spares, OneFloat());
  const std::vector<std::byte> bytes(4);
  int released = 0;
  round.Take(1, ps::Frame::Borrow(bytes, [&] { ++released; }), true);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(round.held_bytes(), 4U);
  round.Take(0, FrameOf(1), false);
  EXPECT_EQ(released, 1);
  round.Take(2, ps::Frame::Borrow(bytes, [&] { ++released; }), false);
  EXPECT_EQ(released, 2);
}

}  // namespace
}  // namespace bs::backend
