// The choice of an RDMA port among devices that files show as a kernel would.
#include "transport/rdma/rdma_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/snapshot.h"
#include "ps-lite/transport/rdma/device_folder.h"
#include "transport/rdma/sysfs_devices.h"

namespace ps::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFive = "0000:0000:0000:0000:0000:ffff:c0a8:0105";  // 192.168.1.5
constexpr const char* kNine = "0000:0000:0000:0000:0000:ffff:c0a8:0209";  // 192.168.2.9
constexpr const char* kOfIb = "fe80:0000:0000:0000:0002:c903:0012:3456";

class RdmaChoiceTest : public ::testing::Test {
 protected:
  bs::Result<RdmaChoice> Choose(const std::string& address, const RdmaWish& wish = {},
                                const std::string& interface = "") const {
    return ChooseRdmaPort(DevicesInFiles(files_.root()), *SocketAddress::Parse(address), interface,
                          wish);
  }
  std::string WhyNot(const std::string& address, const RdmaWish& wish = {},
                     const std::string& interface = "") const {
    return Choose(address, wish, interface).status().message();
  }
  const DeviceFolder files_;
};

TEST_F(RdmaChoiceTest, AHostWithoutDevicesGetsTheRemedy) {
  EXPECT_SNAPSHOT(
      WhyNot("192.168.1.5"),
      "this host shows no RDMA device: load the driver of the card, or start the container "
      "with --device /dev/infiniband");
}

TEST_F(RdmaChoiceTest, TheAddressChoosesTheCardAndItsRoutableEntry) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.PutRoce("mlx5_1", 1, kNine);
  files_.Put("mlx5_1/device/numa_node", "0");
  const RdmaChoice choice = Choose("192.168.2.9").value();
  EXPECT_EQ(choice.device, "mlx5_1");
  EXPECT_EQ(choice.path.port, 1);
  EXPECT_EQ(choice.path.gid_index, 3);
  EXPECT_EQ(choice.numa_node, 0);
  EXPECT_EQ(Choose("192.168.1.5").value().numa_node, -1);
}

TEST_F(RdmaChoiceTest, AnAddressOfIpv6ChoosesToo) {
  files_.PutRoce("mlx5_0", 1, "fd00:0000:0000:0000:0000:0000:0000:0007");
  EXPECT_EQ(Choose("fd00::7").value().path.gid_index, 3);
}

TEST_F(RdmaChoiceTest, AnEntryThatTheKernelDoesNotShowIsSkipped) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.PutGid("mlx5_0", 1, 3, "", "");  // as a file whose reading fails
  files_.PutGid("mlx5_0", 1, 11, kFive, "RoCE v2");
  EXPECT_EQ(Choose("192.168.1.5").value().path.gid_index, 11);
}

TEST_F(RdmaChoiceTest, AnAddressOfNoCardNamesTheAddressesOfTheCards) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.PutPort("mlx5_1", 1, "4: ACTIVE", "Ethernet");
  EXPECT_SNAPSHOT(WhyNot("10.0.0.5"),
                  "no RDMA device has the address 10.0.0.5 (mlx5_0 has 192.168.1.5, mlx5_1 has no "
                  "address): set DMLC_INTERFACE or BYTESCHEDULER_RDMA_DEVICE");
}

TEST_F(RdmaChoiceTest, AWishChoosesWhereTheAddressDoesNot) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.PutRoce("mlx5_1", 1, kNine);
  EXPECT_EQ(Choose("10.0.0.5", {.device = "mlx5_1"}).value().path.gid_index, 3);
  EXPECT_EQ(Choose("192.168.1.5", {.device = "mlx5_1"}).value().device, "mlx5_1");
  const RdmaChoice choice = Choose("192.168.2.9", {.gid_index = 1}).value();
  EXPECT_EQ(choice.device, "mlx5_1");
  EXPECT_EQ(choice.path.gid_index, 1);
}

TEST_F(RdmaChoiceTest, AWishThatCannotBeNamesTheSetting) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.PutRoce("mlx5_1", 1, kNine);
  EXPECT_SNAPSHOT(WhyNot("192.168.1.5", {.device = "mlx5_7"}),
                  "there is no RDMA device mlx5_7: set BYTESCHEDULER_RDMA_DEVICE to one of mlx5_0, "
                  "mlx5_1");
  EXPECT_THAT(WhyNot("192.168.1.5", {.device = "mlx5_0", .port = 2}),
              HasSubstr("mlx5_0 has no port 2"));
  EXPECT_THAT(WhyNot("192.168.1.5", {.gid_index = 9}),
              HasSubstr("mlx5_0 port 1 has no GID 9: unset BYTESCHEDULER_RDMA_GID"));
}

TEST_F(RdmaChoiceTest, APortThatIsDownIsNamed) {
  files_.PutRoce("mlx5_0", 1, kFive);
  files_.Put("mlx5_0/ports/1/state", "1: DOWN");
  EXPECT_SNAPSHOT(WhyNot("192.168.1.5"),
                  "mlx5_0: port 1 is DOWN: bring its link up (ip link, ibstat)");
}

TEST_F(RdmaChoiceTest, IwarpIsRefused) {
  files_.PutRoce("cxgb4_0", 1, kFive);
  files_.Put("cxgb4_0/node_type", "4: RNIC");
  EXPECT_THAT(WhyNot("192.168.1.5"), HasSubstr("cxgb4_0 is an iWARP device"));
}

TEST_F(RdmaChoiceTest, InfiniBandGoesByTheInterfaceOrIsTheOnlyActivePort) {
  files_.PutPort("mlx4_0", 1, "4: ACTIVE", "InfiniBand");
  files_.PutGid("mlx4_0", 1, 0, kOfIb, "IB/RoCE v1");
  files_.Put("mlx4_0/device/net/ib0/dev_port", "0");
  const RdmaChoice only = Choose("10.0.0.5").value();
  EXPECT_EQ(only.path.gid_index, 0);
  EXPECT_EQ(only.path.port, 1);

  files_.PutPort("mlx4_0", 2, "4: ACTIVE", "InfiniBand");
  files_.PutGid("mlx4_0", 2, 0, kOfIb, "IB/RoCE v1");
  files_.Put("mlx4_0/device/net/ib1/dev_port", "1");
  EXPECT_EQ(Choose("10.0.0.5", {}, "ib1").value().path.port, 2);
  EXPECT_THAT(WhyNot("10.0.0.5", {}, "eth0"), HasSubstr("no RDMA device has the address 10.0.0.5"));
}

TEST(ParseRdmaDeviceTest, NamesDeviceAndPort) {
  EXPECT_EQ(ParseRdmaDevice("mlx5_0").value().device, "mlx5_0");
  EXPECT_EQ(ParseRdmaDevice("mlx5_0").value().port, 0);
  EXPECT_EQ(ParseRdmaDevice("mlx5_0:2").value().port, 2);
  EXPECT_EQ(ParseRdmaDevice("").value().device, "");
  for (const char* bad : {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256", ":1", "../mlx5_0"}) {
    EXPECT_EQ(ParseRdmaDevice(bad).status().code(), bs::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(InterfaceOfTest, FindsTheInterfaceOfALocalAddress) {
  EXPECT_EQ(InterfaceOf(*SocketAddress::Parse("127.0.0.1")), "lo");
  EXPECT_EQ(InterfaceOf(*SocketAddress::Parse("203.0.113.1")), "");
}

}  // namespace
}  // namespace ps::test
