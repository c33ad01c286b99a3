// Links by RDMA over simulated NICs, seed by seed: what is sent arrives once, in order and whole,
// whatever the link does meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ps-lite/transport/rdma/links/rdma_traffic.h"

namespace ps::test {
namespace {

TEST(RdmaSeedsTest, MessagesArriveOnceAndInOrder) {
  std::mt19937 random(1);
  std::vector<std::byte> pattern(RdmaTraffic::kPatternBytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random());
  uint64_t reads = 0;
  int lost = 0;
  constexpr uint64_t seeds = BS_RDMA_SEEDS;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RdmaTraffic traffic(seed, pattern);
    traffic.Run(40, seed % 3 == 0 ? 0 : 3);
    reads += traffic.receiver_counts().reads;
    lost += traffic.lost();
  }
  // The seeds are worth something.
  EXPECT_GT(reads, 5 * seeds);
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, static_cast<int>(20 * seeds));
}

}  // namespace
}  // namespace ps::test
