// Simulated jobs whose workers add up on their hosts: hosts of three, one and two workers, under
// delay, loss, repetition and death.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "sim/cluster.h"

namespace bs::sim {
namespace {

constexpr uint64_t kHostParts = 8;
constexpr uint64_t kHostSeeds = BS_CLUSTER_SEEDS * 5 / 6 / kHostParts;  // of a part

struct HostsDraw {
  ClusterOptions (*draw)(uint64_t);
  const char* flag;
};
// A death in every fourth job, and a goodbye; codes in every third.
HostsDraw DrawOf(uint64_t seed) {
  if (seed % 3 == 2) return {DrawCodedHosts, "--hosts-coded"};
  if (seed % 4 == 1) return {DrawHostsDeath, "--hosts-death"};
  if (seed % 4 == 3) return {DrawHostsGoodbye, "--hosts-goodbye"};
  return {DrawHosts, "--hosts"};
}

class HostsSweep : public ::testing::TestWithParam<uint64_t> {};

TEST_P(HostsSweep, EverySumIsRightAndEveryPromiseIsKept) {
  uint64_t copies = 0;
  const uint64_t first = GetParam() * kHostSeeds;
  for (uint64_t seed = first; seed < first + kHostSeeds; ++seed) {
    const auto [draw, flag] = DrawOf(seed);
    const Report report = RunCluster(draw(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test " << flag << " --seed=" << seed;
    copies += report.copies;
  }
  EXPECT_GT(copies, kHostSeeds) << "of hosts with several workers";
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostsSweep, ::testing::Range<uint64_t>(0, kHostParts));

// Each worker dies at each message between workers of a host.
TEST(HostsCluster, DeathAtEachMessageIsNamed) {
  for (const uint64_t seed : {0U, 1U}) {
    const uint64_t messages = RunCluster(DrawSmallHosts(seed), seed).beside;
    ASSERT_GT(messages, 20U);
    const uint64_t stride = BS_CLUSTER_SEEDS >= 2400 ? 1 : 7;
    uint64_t died = 0;
    for (uint64_t message = 1; message <= messages; message += stride) {
      const auto rank = static_cast<int32_t>((message + seed) % 6);
      ClusterOptions options = DrawSmallHosts(seed);
      options.death = Event{.rank = rank, .after_beside = message};
      const Report report = RunCluster(options, seed);
      died += report.died ? 1 : 0;
      ASSERT_TRUE(report.problems.empty()) << report.ToString() << "seed " << seed << ", worker "
                                           << rank << " at message " << message;
    }
    EXPECT_GT(died, messages / stride / 2);
  }
}

// Jobs of one host, and hosts of one worker, send what they sent before.
TEST(HostsCluster, OneHostAndHostsOfOneWorkerSendNoCopies) {
  for (const std::vector<int32_t>& hosts : {std::vector<int32_t>(6, 0), {0, 1, 2, 3, 4, 5}}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      ClusterOptions options = DrawHosts(seed);
      options.hosts.assign(hosts.begin(), hosts.end());
      options.server_hosts.assign(static_cast<size_t>(options.num_servers), 0);
      const Report report = RunCluster(options, seed);
      EXPECT_TRUE(report.problems.empty()) << report.ToString() << "seed " << seed;
      EXPECT_EQ(report.copies + report.beside, 0U);
    }
  }
}

}  // namespace
}  // namespace bs::sim
