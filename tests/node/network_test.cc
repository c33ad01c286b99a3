#include "node/network.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/numa.h"
#include "base/pauses.h"
#include "transport/rdma/rdma_options.h"

namespace bs::node {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20U;
constexpr uint64_t kGiB = uint64_t{1} << 30U;

TEST(MostWaitingBytesTest, IsHalfOfTheMemoryLeftUnlessItIsSet) {
  Config config;
  config.waiting_bytes = 8 * kGiB;
  EXPECT_EQ(MostWaitingBytes(config, std::numeric_limits<uint64_t>::max()), 8 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 100 * kGiB), 8 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 6 * kGiB), 3 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 0), 64 * kMiB);
  config.waiting_given = true;
  EXPECT_EQ(MostWaitingBytes(config, 6 * kGiB), 8 * kGiB);
}

TEST(MostBacklogBytesTest, IsHalfOfTheMemoryLeftToo) {
  EXPECT_EQ(MostBacklogBytes(std::numeric_limits<uint64_t>::max()), 4 * kGiB);
  EXPECT_EQ(MostBacklogBytes(2 * kGiB), kGiB);
  EXPECT_EQ(MostBacklogBytes(0), 64 * kMiB);
}

TEST(NetworkTest, ItsThreadSpinsForAsLongAsIsSet) {
  Config config;
  Network sleeping(config, Logger("", LogLevel::kOff));
  config.spin = std::chrono::hours(1);
  config.spin_given = true;  // also where control groups bound the test
  Network spinning(config, Logger("", LogLevel::kOff));
  EXPECT_TRUE(TakesMoreInPauses(spinning.io(), sleeping.io()));
  sleeping.transport()->Close(Duration(0));
  spinning.transport()->Close(Duration(0));
}

TEST(NetworkTest, ItsThreadStaysOnTheCoresNearTheDevice) {
  const std::vector<NumaNode> nodes = DiscoverNumaNodes();
  const int last = nodes.back().cores.back();
  for (const int core : {last, 100000}) {
    std::atomic<int> warnings = 0;
    const Logger log("", LogLevel::kWarning, [&](LogLevel, std::string_view) { ++warnings; });
    ps::RdmaOptions rdma{.device = "mlx5_0", .cores = {core}};
    Network network(Config(), log, std::move(rdma));
    std::promise<std::vector<NumaNode>> seen;
    network.io()->Post([&seen] { seen.set_value(DiscoverNumaNodes()); });
    const std::vector<NumaNode> usable = seen.get_future().get();
    network.transport()->Close(Duration(0));
    if (core == last && warnings == 0) {
      ASSERT_EQ(usable.size(), 1U);
      EXPECT_EQ(usable[0].cores, std::vector<int>{last});
    } else {  // a core that is not there, or a system that refuses
      EXPECT_EQ(warnings, 1);
      EXPECT_EQ(usable.size(), nodes.size());
    }
  }
}

TEST(SpinOf, AQuotaBelowTwoProcessorsEndsItUnlessItIsSet) {
  Config config;
  config.spin = std::chrono::milliseconds(1);
  EXPECT_EQ(SpinOf(config, 0.5), Duration::zero());
  EXPECT_EQ(SpinOf(config, 2), config.spin);
  config.spin_given = true;
  EXPECT_EQ(SpinOf(config, 0.5), config.spin);
}

TEST(MakeMembershipOptions, ABrokenLinkMayComeBackForLongerWithRdma) {
  Config config;
  config.root_uri = "127.0.0.1";
  const auto grace = [&](const char* rdma) {
    config.rdma = rdma;
    return MakeMembershipOptions(config, ps::Role::kScheduler).value().reconnect_grace;
  };
  EXPECT_EQ(grace("0"), std::chrono::seconds(1));
  EXPECT_EQ(grace("1"), std::chrono::seconds(4));
  EXPECT_EQ(grace("auto"), std::chrono::seconds(4));
}

}  // namespace
}  // namespace bs::node
