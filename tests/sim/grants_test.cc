// Thousands of simulated jobs whose sums a library makes, in the order that a leader grants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/cluster.h"

namespace bs::sim {
namespace {

// The sweep is cut into tests, so that several cores can share it.
constexpr uint64_t kGrantParts = 8;
constexpr uint64_t kGrantSeedsOfPart = (BS_GRANT_SEEDS + kGrantParts - 1) / kGrantParts;
constexpr uint64_t kDeathsOfPart = (kGrantSeedsOfPart + 4) / 5;
constexpr uint64_t kHostSeedsOfPart = (kGrantSeedsOfPart + 19) / 20;
// With few seeds, a death at some of the messages.
constexpr uint64_t kStride = BS_CLUSTER_SEEDS >= 2400 ? 1 : 7;

class GrantsSweep : public ::testing::TestWithParam<uint64_t> {};

TEST_P(GrantsSweep, EverySumIsRightAndAllRanksCallOneSequence) {
  uint64_t sums = 0;
  uint64_t pieces = 0;
  const uint64_t first = GetParam() * kGrantSeedsOfPart;
  for (uint64_t seed = first; seed < first + kGrantSeedsOfPart; ++seed) {
    const Report report = RunCluster(DrawGrants(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --grants --seed=" << seed;
    sums += report.library_sums;
    pieces += report.library_pieces;
  }
  EXPECT_GT(sums, 5 * kGrantSeedsOfPart);
  EXPECT_GT(pieces, sums);  // some are fused
}

TEST_P(GrantsSweep, DeathIsNamed) {
  const uint64_t first = GetParam() * kDeathsOfPart;
  for (uint64_t seed = first; seed < first + kDeathsOfPart; ++seed) {
    const Report report = RunCluster(DrawGrantsDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --grants-death --seed=" << seed;
  }
}

// A library on each host adds up, owners exchange its sums, and it gives them to all ranks.
TEST_P(GrantsSweep, SumsOfHostsAreRight) {
  uint64_t copied_bytes = 0;
  const uint64_t first = GetParam() * kHostSeedsOfPart;
  for (uint64_t seed = first; seed < first + kHostSeedsOfPart; ++seed) {
    const Report report = RunCluster(DrawHostGrants(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --host-grants --seed=" << seed;
    copied_bytes += report.library_copied_bytes;
  }
  if (kHostSeedsOfPart >= 5) {
    EXPECT_GT(copied_bytes, 0U);  // a few jobs have no plain sums
  }
}

TEST_P(GrantsSweep, DeathAmongHostsIsNamed) {
  const uint64_t first = GetParam() * kHostSeedsOfPart;
  for (uint64_t seed = first; seed < first + kHostSeedsOfPart; ++seed) {
    const Report report = RunCluster(DrawHostGrantsDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --host-grants-death --seed=" << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, GrantsSweep, ::testing::Range<uint64_t>(0, kGrantParts));

// A short job, whose messages can be counted.
ClusterOptions ShortJob() {
  ClusterOptions options;
  options.num_workers = 3;
  options.num_servers = 2;
  options.early_bytes = 0;
  options.network.delay_min = options.network.delay_max = std::chrono::microseconds(300);
  options.keys = {{.key = 1, .count = 40, .rounds = 2}, {.key = 2, .count = 8, .rounds = 2}};
  options.grants = GrantOptions{.partition_bytes = 64, .credit_bytes = 128};
  return options;
}

TEST(Grants, DeathAtEachMessageIsNamed) {
  const Report whole = RunCluster(ShortJob(), 1);
  ASSERT_TRUE(whole.problems.empty()) << whole.ToString();
  ASSERT_GT(whole.ready_messages, 30U);
  const std::vector<std::pair<ps::Role, int32_t>> victims = {{ps::Role::kWorker, 0},
                                                             {ps::Role::kWorker, 2},
                                                             {ps::Role::kServer, 0},
                                                             {ps::Role::kServer, 1}};
  for (uint64_t messages = 1; messages < whole.ready_messages; messages += kStride) {
    for (const auto& [role, rank] : victims) {
      ClusterOptions options = ShortJob();
      options.death = Event{.role = role, .rank = rank, .after_ready_messages = messages};
      const Report report = RunCluster(options, 1);
      ASSERT_TRUE(report.problems.empty())
          << report.ToString() << ps::NameOf(role) << " " << rank << " after " << messages;
      EXPECT_TRUE(report.died);
    }
  }
}

}  // namespace
}  // namespace bs::sim
