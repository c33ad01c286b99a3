// The choice of a device follows the address that the node shows to the others.
#include "node/rdma.h"

#include <gtest/gtest.h>

#include <string>

namespace bs::api {
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

}  // namespace
}  // namespace bs::api
