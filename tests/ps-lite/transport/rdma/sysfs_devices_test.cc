// The list of RDMA devices, from files as a kernel would show them.
#include "transport/rdma/sysfs_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps-lite/transport/rdma/device_folder.h"
#include "transport/rdma/rdma_choice.h"

namespace ps::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kGidOfFive = "0000:0000:0000:0000:0000:ffff:c0a8:0105";  // 192.168.1.5

TEST(SysfsDevicesTest, AHostWithoutDevicesListsNone) {
  const DeviceFolder files;
  EXPECT_THAT(DevicesInFiles(files.root()), IsEmpty());
}

TEST(SysfsDevicesTest, ADeviceIsListedWithPortsGidsInterfacesAndNode) {
  const DeviceFolder files;
  files.PutRoce("mlx5_0", 1, kGidOfFive);
  files.Put("mlx5_0/device/numa_node", "1");
  files.Put("mlx5_0/device/net/eth2/dev_port", "0");
  files.PutPort("mlx5_0", 2, "1: DOWN", "InfiniBand");
  files.Put("mlx5_0/device/net/ib0/dev_port", "1");
  const std::vector<RdmaDevice> devices = DevicesInFiles(files.root());
  ASSERT_THAT(devices, SizeIs(1));
  EXPECT_EQ(devices[0].name, "mlx5_0");
  EXPECT_EQ(devices[0].numa_node, 1);
  ASSERT_THAT(devices[0].ports, SizeIs(2));
  const RdmaPort& first = devices[0].ports[0];
  EXPECT_EQ(first.state, "ACTIVE");
  EXPECT_EQ(first.layer, RdmaLayer::kEthernet);
  EXPECT_TRUE(first.active);
  EXPECT_THAT(first.interfaces, ElementsAre("eth2"));
  ASSERT_THAT(first.gids, SizeIs(4));  // the free entry is none
  EXPECT_EQ(first.gids[2].type, RdmaGid::Type::kRoceV1);
  EXPECT_EQ(first.gids[3].type, RdmaGid::Type::kRoceV2);
  EXPECT_EQ(TextOfGid(first.gids[3].bytes), "192.168.1.5");
  EXPECT_EQ(TextOfGid(first.gids[0].bytes), "fe80::202:3ff:fe04:506");
  const RdmaPort& second = devices[0].ports[1];
  EXPECT_EQ(second.state, "DOWN");
  EXPECT_EQ(second.layer, RdmaLayer::kInfiniBand);
  EXPECT_FALSE(second.active);
  EXPECT_EQ(second.lid, 0x1a);
  EXPECT_THAT(second.interfaces, ElementsAre("ib0"));
}

TEST(SysfsDevicesTest, IwarpIsOfAnotherLayer) {
  const DeviceFolder files;
  files.PutRoce("cxgb4_0", 1, kGidOfFive);
  files.Put("cxgb4_0/node_type", "4: RNIC");
  EXPECT_EQ(DevicesInFiles(files.root())[0].ports[0].layer, RdmaLayer::kOther);
}

}  // namespace
}  // namespace ps::test
