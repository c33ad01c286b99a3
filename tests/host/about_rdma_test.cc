// Rows about RDMA: what each device has, and which one a node would use.
#include "host/about_rdma.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "host/on_loopback.h"

namespace bs::host {
namespace {

ps::GidBytes Ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  ps::GidBytes bytes{};
  bytes[10] = bytes[11] = std::byte{0xff};
  bytes[12] = std::byte{a};
  bytes[13] = std::byte{b};
  bytes[14] = std::byte{c};
  bytes[15] = std::byte{d};
  return bytes;
}

// A card with one port, which has the address of the loopback interface.
ps::RdmaDevice Card() {
  ps::RdmaPort port{.number = 1,
                    .layer = ps::RdmaLayer::kEthernet,
                    .active = true,
                    .state = "ACTIVE",
                    .mtu_bytes = 4096};
  port.interfaces = {"eth2"};
  port.gids = {{.index = 2, .bytes = Ipv4(127, 0, 0, 1), .type = ps::RdmaGid::Type::kRoceV1},
               {.index = 3, .bytes = Ipv4(127, 0, 0, 1), .type = ps::RdmaGid::Type::kRoceV2}};
  ps::RdmaDevice device{.name = "mlx5_0", .ports = {port}};
  device.numa_node = 1;
  return device;
}

// "what name value" of each row.
std::vector<std::string> Texts(const std::vector<HostFact>& facts) {
  std::vector<std::string> texts;
  for (const HostFact& fact : facts) {
    texts.push_back(fact.what + " " + fact.name + " " + fact.value);
  }
  return texts;
}

// The reason in the row about the choice.
std::string WhyNone(const std::vector<HostFact>& facts) {
  const auto row = std::ranges::find(facts, "rdma_choice", &HostFact::what);
  EXPECT_NE(row, facts.end());
  EXPECT_EQ(row->name, "");
  return row->value;
}

TEST(AboutRdma, ListsPortsAddressesAndTheChoice) {
  const std::vector<std::string> want = {
      "rdma_port mlx5_0:1 ACTIVE, Ethernet, MTU 4096, interface eth2, NUMA node 1",
      "rdma_gid mlx5_0:1/2 127.0.0.1 (RoCE v1)",
      "rdma_gid mlx5_0:1/3 127.0.0.1 (RoCE v2)",
      "rdma_choice mlx5_0:1 GID 3",
      "rdma_memory  ",
      "rdma_fork harmless ",
  };
  const RdmaOfHost found{.devices = {Card()}, .fork = ps::RdmaFork::kHarmless};
  EXPECT_EQ(Texts(AboutRdma(OnLoopback(), found)), want);
}

TEST(AboutRdma, SaysWhyNoneIsChosen) {
  const auto why = [](const Config& config, const std::vector<ps::RdmaDevice>& devices) {
    return WhyNone(AboutRdma(config, {.devices = devices}));
  };
  EXPECT_TRUE(why(OnLoopback(), {}).starts_with("this host shows no RDMA device: "));
  ps::RdmaDevice down = Card();
  down.ports[0].active = false;
  down.ports[0].state = "DOWN";
  EXPECT_TRUE(why(OnLoopback(), {down}).starts_with("mlx5_0: port 1 is DOWN: "));
  ps::RdmaDevice elsewhere = Card();
  elsewhere.ports[0].gids[1].bytes = Ipv4(10, 0, 0, 5);
  EXPECT_TRUE(why(OnLoopback(), {elsewhere})
                  .starts_with("no RDMA device has the address 127.0.0.1 (mlx5_0 has 10.0.0.5): "));
  Config nowhere = OnLoopback();
  nowhere.interface = "nosuch";
  EXPECT_TRUE(why(nowhere, {Card()}).starts_with("DMLC_INTERFACE=nosuch: "));
  nowhere = OnLoopback();
  nowhere.node_host = "nosuch.invalid.";
  EXPECT_TRUE(why(nowhere, {Card()})
                  .starts_with("the address of this node, nosuch.invalid., cannot be resolved ("));
}

TEST(AboutRdma, ALibraryThatOpensNoDeviceIsTheReason) {
  const RdmaOfHost found{.devices = {Card()},
                         .usable = Status::Unavailable("libibverbs.so.1 is not there: install it"),
                         .locked_limit_bytes = 64U << 10U};
  const std::vector<HostFact> facts = AboutRdma(OnLoopback(), found);
  EXPECT_EQ(WhyNone(facts), "libibverbs.so.1 is not there: install it");
  EXPECT_EQ(facts.back().what, "rdma_memory");
  EXPECT_TRUE(facts.back().value.starts_with("the limit of locked memory is 64 KiB: "));
}

TEST(LookAtRdma, FindsDevicesInFiles) {
  namespace fs = std::filesystem;
  const std::string root = ::testing::TempDir() + "about_rdma-" + std::to_string(::getpid());
  EXPECT_TRUE(LookAtRdma(root).devices.empty());
  const fs::path port = root + "/sys/class/infiniband/no_such_card0/ports/1";
  fs::create_directories(port);
  std::ofstream(port / "state") << "4: ACTIVE\n";
  std::ofstream(port / "link_layer") << "Ethernet\n";
  const RdmaOfHost found = LookAtRdma(root);
  fs::remove_all(root);
  ASSERT_EQ(found.devices.size(), 1U);
  EXPECT_EQ(found.devices[0].name, "no_such_card0");
  EXPECT_FALSE(found.usable.ok());  // no library, or one that knows no such card
}

}  // namespace
}  // namespace bs::host
