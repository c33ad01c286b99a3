// The choice of a device follows the address that the node shows to the others.
#include "host/rdma.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/sysfs_devices.h"

namespace bs::host {
namespace {

ps::RdmaDevice Card(const std::string& name, uint8_t last) {
  ps::GidBytes gid{};
  gid[10] = gid[11] = std::byte{0xff};
  gid[12] = std::byte{127};
  gid[15] = std::byte{last};
  ps::RdmaPort port{.layer = ps::RdmaLayer::kEthernet, .active = true, .state = "ACTIVE"};
  port.gids = {{.index = 1, .bytes = gid, .type = ps::RdmaGid::Type::kRoceV2}};
  return {.name = name, .ports = {port}};
}

TEST(ChooseRdma, TakesTheCardThatHasTheAddressOfTheNode) {
  const std::vector<ps::RdmaDevice> cards = {Card("mlx5_0", 2), Card("mlx5_1", 1)};
  Config config;
  config.root_uri = "127.0.0.1";
  EXPECT_EQ(ChooseRdma(config, cards).value().device, "mlx5_1");
  config.node_host = "127.0.0.2";
  const ps::RdmaChoice chosen = ChooseRdma(config, cards).value();
  EXPECT_EQ(chosen.device, "mlx5_0");
  EXPECT_EQ(chosen.path.gid_index, 1);
  config.node_host = "127.0.0.3";
  EXPECT_EQ(ChooseRdma(config, cards).status().code(), StatusCode::kUnavailable);
}

TEST(ChooseRdma, FollowsTheSettings) {
  std::vector<ps::RdmaDevice> cards = {Card("mlx5_0", 2), Card("mlx5_1", 1)};
  cards[0].ports[0].gids.push_back(cards[0].ports[0].gids[0]);
  cards[0].ports[0].gids[1].index = 7;
  Config config;
  config.root_uri = "127.0.0.1";
  config.rdma_device = "mlx5_0:1";
  config.rdma_gid = 7;
  const ps::RdmaChoice chosen = ChooseRdma(config, cards).value();
  EXPECT_EQ(chosen.device, "mlx5_0");
  EXPECT_EQ(chosen.path.gid_index, 7);
  config.rdma_device = "mlx5_0:x";
  EXPECT_EQ(ChooseRdma(config, cards).status().message(),
            "BYTESCHEDULER_RDMA_DEVICE: \"mlx5_0:x\" is no RDMA device: write mlx5_0 or mlx5_0:1");
}

TEST(PlaceNear, TakesTheNodeOfTheDeviceAndItsCores) {
  // No host has a node 1023, so memory cannot be placed there.
  const std::vector<NumaNode> nodes = {{.id = 0, .cores = {0, 1}}, {.id = 1023, .cores = {2, 5}}};
  std::vector<std::string> said;
  const Logger log("", LogLevel::kWarning,
                   [&](LogLevel, std::string_view line) { said.emplace_back(line); });
  ps::RdmaOptions options{.device = "mlx5_0"};
  PlaceNear(1023, nodes, log, &options);
  EXPECT_EQ(options.numa_node, 1023);
  EXPECT_EQ(options.cores, (std::vector<int>{2, 5}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("on NUMA node 1023, that of mlx5_0, so"), std::string::npos) << said[0];
}

TEST(PlaceNear, ChangesNothingWithoutAChoice) {
  const std::vector<NumaNode> two = {{.id = 0, .cores = {0}}, {.id = 1, .cores = {1}}};
  const Logger log("", LogLevel::kOff);
  for (const auto& [node, nodes] : {std::pair{-1, two}, {2, two}, {0, {two[0]}}}) {
    ps::RdmaOptions options;
    PlaceNear(node, nodes, log, &options);
    EXPECT_EQ(options.numa_node, -1);
    EXPECT_TRUE(options.cores.empty());
  }
}

Config Worker(const std::string& rdma) {
  Config config;
  config.role = "worker";
  config.transport = "tcp";
  config.root_uri = "127.0.0.1";
  config.rdma = rdma;
  return config;
}

class UseRdmaTest : public ::testing::Test {
 protected:
  // Says why not, for a worker with two servers whose card is simulated.
  std::string WhyNot(const ps::test::NicOptions& nic, uint64_t locked_limit_bytes, bool up = true,
                     int32_t slots = 64) {
    const auto verbs = fabric_.Add("sim" + std::to_string(cards_++), nic);
    verbs->SetPort(up);
    Config config = Worker("0");
    config.num_servers = 2;
    config.rdma_slots = slots;
    config.rdma_slot_bytes = 8192;
    config.rdma_bounce_bytes = 1U << 20U;
    config.rdma_pinned_bytes = 16U << 20U;
    const auto options = UseRdma(config, verbs, locked_limit_bytes, Logger("", LogLevel::kOff));
    if (options.ok()) {
      EXPECT_EQ(options.value().verbs, verbs);
      most_lent_bytes_ = options.value().most_lent_bytes;
    }
    return options.ok() ? "" : options.status().message();
  }

  ps::test::SimulatedFabric fabric_{{.threaded = false}};
  int cards_ = 0;
  uint64_t most_lent_bytes_ = 0;  // of the latest card that is used
};

TEST_F(UseRdmaTest, ACardThatCanServeIsUsed) {
  EXPECT_EQ(WhyNot({}, ps::kNoLockedMemoryLimit), "");
  EXPECT_EQ(WhyNot({}, 4U << 20U), "") << "what does not fit is copied";
}

TEST_F(UseRdmaTest, LoansLeaveRoomForBlocksWhereLockedMemoryIsLimited) {
  EXPECT_EQ(WhyNot({}, ps::kNoLockedMemoryLimit), "");
  EXPECT_EQ(most_lent_bytes_, 16U << 20U) << "what BYTESCHEDULER_RDMA_PINNED says";
  EXPECT_EQ(WhyNot({}, 64U << 20U), "");
  EXPECT_EQ(most_lent_bytes_, 16U << 20U);
  EXPECT_EQ(WhyNot({}, 11U << 20U), "");
  EXPECT_EQ(most_lent_bytes_, 4U << 20U) << "half of 11 MiB without 2 of slots and 1 of bounce";
  EXPECT_EQ(WhyNot({}, 2U << 20U), "");
  EXPECT_EQ(most_lent_bytes_, 0U);
}

TEST_F(UseRdmaTest, EachReasonNamesItsCure) {
  EXPECT_EQ(WhyNot({.most_reads = 0}, ps::kNoLockedMemoryLimit),
            "sim0 allows no READs (max_qp_rd_atom), which RDMA needs here: set "
            "BYTESCHEDULER_RDMA_DEVICE to another, or use TCP");
  // It would do for the slots themselves, but they come in whole arenas.
  EXPECT_EQ(
      WhyNot({}, 1536U << 10U),
      "RDMA needs 2048 KiB of locked memory for its connections alone, and the limit of "
      "locked memory is 1536 KiB: ulimit -l unlimited, or --ulimit memlock=-1 for a container");
  // A block of 65 slots is as large as one of 128.
  EXPECT_EQ(
      WhyNot({}, 2048U << 10U, true, 65),
      "RDMA needs 4096 KiB of locked memory for its connections alone, and the limit of "
      "locked memory is 2048 KiB: ulimit -l unlimited, or --ulimit memlock=-1 for a container");
  EXPECT_EQ(WhyNot({}, ps::kNoLockedMemoryLimit, false),
            "sim3: port 1 is DOWN: bring its link up (ip link, ibstat)");
  EXPECT_EQ(WhyNot({.address = "10.0.0.5"}, ps::kNoLockedMemoryLimit),
            "no RDMA device has the address 127.0.0.1 (sim4 has 10.0.0.5): set DMLC_INTERFACE or "
            "BYTESCHEDULER_RDMA_DEVICE");
}

TEST(MakeRdmaOptions, ThereIsNoneWhereNoneIsWanted) {
  const Logger log("", LogLevel::kOff);
  Config scheduler = Worker("1");
  scheduler.role = "scheduler";
  Config encrypted = Worker("auto");
  encrypted.secret = "secret";
  for (const Config& config : {Worker("0"), scheduler, encrypted}) {
    const Result<ps::RdmaOptions> options = MakeRdmaOptions(config, log);
    ASSERT_TRUE(options.ok()) << options.status().ToString();
    EXPECT_FALSE(options.value().verbs);
  }
}

TEST(MakeRdmaOptions, OnlyRequiredRdmaIsAnErrorWhereItCannotBeHad) {
  if (!ps::DevicesInFiles().empty()) GTEST_SKIP() << "this host has an RDMA device";
  const Logger log("", LogLevel::kOff);
  EXPECT_FALSE(MakeRdmaOptions(Worker("auto"), log).value().verbs);
  const Status status = MakeRdmaOptions(Worker("ibverbs"), log).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("DMLC_ENABLE_RDMA=ibverbs: ")) << status.message();
}

}  // namespace
}  // namespace bs::host
