#include "node/network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "base/pauses.h"

namespace bs::api {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20U;
constexpr uint64_t kGiB = uint64_t{1} << 30U;

TEST(MostWaitingBytesTest, IsHalfOfWhatIsLeftUnlessItIsSet) {
  Config config;
  config.waiting_bytes = 8 * kGiB;
  EXPECT_EQ(MostWaitingBytes(config, std::numeric_limits<uint64_t>::max()), 8 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 100 * kGiB), 8 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 6 * kGiB), 3 * kGiB);
  EXPECT_EQ(MostWaitingBytes(config, 0), 64 * kMiB);
  config.waiting_given = true;
  EXPECT_EQ(MostWaitingBytes(config, 6 * kGiB), 8 * kGiB);
}

TEST(MostBacklogBytesTest, IsHalfOfWhatIsLeftToo) {
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
}  // namespace bs::api
