// Which address a node shows: what is set wins, loopback stays on loopback.
#include "host/host.h"

#include <gtest/gtest.h>

#include "base/host_networks.h"

namespace bs::host {
namespace {

Config WithRoot(const std::string& root) {
  Config config;
  config.root_uri = root;
  return config;
}

TEST(OwnHost, TheSettingWins) {
  Config config = WithRoot("127.0.0.1");
  config.node_host = "node7.example";
  config.interface = "lo";
  EXPECT_EQ(OwnHost(config).value(), "node7.example");
}

// The system lists eth10 first.
const std::vector<Interface> kLikeNames = {{"lo", "127.0.0.1", true},
                                           {"eth10", "10.0.10.1", false},
                                           {"eth1", "10.0.1.1", false},
                                           {"eth2", "fd00::2", false},
                                           {"eth20", "10.0.20.1", false}};

TEST(InterfaceAddress, AnExactNameWinsOverAPrefix) {
  EXPECT_EQ(InterfaceAddress("eth1", kLikeNames, false).value(), "10.0.1.1");
  EXPECT_EQ(InterfaceAddress("eth10", kLikeNames, false).value(), "10.0.10.1");
  EXPECT_EQ(InterfaceAddress("eth", kLikeNames, false).value(), "10.0.10.1");
  EXPECT_EQ(InterfaceAddress("eth", kLikeNames, true).value(), "fd00::2");
}

TEST(InterfaceAddress, AnExactNameWithoutSuchAnAddressIsRefused) {
  const Result<std::string> other = InterfaceAddress("eth2", kLikeNames, false);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().message(),
            "DMLC_INTERFACE=eth2: that interface has no IPv4 address, as the scheduler node has; "
            "there are: lo, eth10, eth1, eth20");
}

TEST(OwnHost, IsTheAddressThatTheRouteLeavesFrom) {
  const Config config = WithRoot("192.0.2.1");
  if (!HasRoute("192.0.2.1")) GTEST_SKIP() << "no route out of this host";
  const std::string route = RouteAddress(config);
  EXPECT_FALSE(route.empty());
  EXPECT_EQ(OwnHost(config).value(), route);
}

TEST(OwnHost, AnIpv6SchedulerOnLoopbackGetsLoopbackToo) {
  EXPECT_EQ(OwnHost(WithRoot("::1")).value(), "::1");
  EXPECT_TRUE(RootIsIpv6(WithRoot("::1")));
  EXPECT_FALSE(RootIsIpv6(WithRoot("::ffff:127.0.0.1")));
  EXPECT_FALSE(RootIsIpv6(WithRoot("127.0.0.1")));
  EXPECT_FALSE(RootIsIpv6(WithRoot("nosuch.invalid")));
}

TEST(OwnHost, TakesTheInterfaceByTheBeginningOfItsName) {
  Config config = WithRoot("192.0.2.1");
  config.interface = "l";
  EXPECT_EQ(OwnHost(config).value(), "127.0.0.1");
}

TEST(OwnHost, AnUnknownInterfaceIsRefusedWithTheKnownInterfaces) {
  Config config = WithRoot("127.0.0.1");
  config.interface = "nosuch";
  const Result<std::string> host = OwnHost(config);
  ASSERT_FALSE(host.ok());
  EXPECT_EQ(host.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(host.status().message().starts_with(
      "DMLC_INTERFACE=nosuch: no interface with an IPv4 address starts so; there are: "))
      << host.status().message();
}

TEST(OwnHost, ALoopbackSchedulerKeepsTheJobOnLoopback) {
  EXPECT_EQ(OwnHost(WithRoot("127.0.0.1")).value(), "127.0.0.1");
  EXPECT_EQ(OwnHost(WithRoot("127.9.9.9")).value(), "127.0.0.1");
  EXPECT_EQ(OwnHost(WithRoot("localhost")).value(), "127.0.0.1");
}

TEST(OwnHost, IpcNeedsNoNetwork) {
  Config config = WithRoot("192.0.2.1");
  config.local_ipc = true;
  EXPECT_EQ(OwnHost(config).value(), "127.0.0.1");
}

TEST(OwnHost, ElsewhereItIsNeverALoopbackAddress) {
  const Result<std::string> host = OwnHost(WithRoot("192.0.2.1"));
  if (host.ok()) {
    EXPECT_FALSE(host.value().starts_with("127.")) << host.value();
  } else {
    EXPECT_NE(host.status().message().find("set DMLC_NODE_HOST"), std::string::npos);
  }
}

TEST(CheckOwnHost, TakesAddressesNamesAndInterfaces) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "0.0.0.0", "localhost", "lo"}) {
    EXPECT_TRUE(CheckOwnHost("DMLC_NODE_HOST", host).ok()) << host;
  }
}

TEST(CheckOwnHost, ForeignAddressesAreRefusedWithTheSettingAndTheOwnAddresses) {
  const Status status = CheckOwnHost("DMLC_NODE_HOST", "192.0.2.9");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with(
      "DMLC_NODE_HOST=192.0.2.9: no address of this host; this host has "))
      << status.message();
}

TEST(CheckOwnHost, UnknownNamesAreRefusedAsSuch) {
  const Status status = CheckOwnHost("DMLC_PS_ROOT_URI", "nosuch.invalid");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with(
      "DMLC_PS_ROOT_URI=nosuch.invalid: the name cannot be resolved ("))
      << status.message();
}

TEST(CheckOwnHost, TheSchedulerNodesAddressHasAWayOutOfPodsAndNat) {
  const Status root = CheckOwnHost("DMLC_PS_ROOT_URI", "192.0.2.9");
  EXPECT_NE(root.message().find("DMLC_USE_KUBERNETES=1"), std::string::npos) << root.message();
  const Status node = CheckOwnHost("DMLC_NODE_HOST", "192.0.2.9");
  EXPECT_EQ(node.message().find("DMLC_USE_KUBERNETES"), std::string::npos) << node.message();
}

TEST(CheckNames, NamesThatMayComeLaterAreUnavailable) {
  Config config = WithRoot("nosuch.invalid");
  for (const char* role : {"scheduler", "server", "worker"}) {
    config.role = role;
    const Status status = CheckNames(config);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(status.message().starts_with(
        "DMLC_PS_ROOT_URI=nosuch.invalid: the name cannot be resolved ("))
        << status.message();
  }
  config.role = "scheduler";
  config.use_kubernetes = true;  // the name is that of a service in front of it
  EXPECT_TRUE(CheckNames(config).ok());
  config = WithRoot("127.0.0.1");
  config.role = "worker";
  EXPECT_TRUE(CheckNames(config).ok());
  config.role = "scheduler";
  EXPECT_TRUE(CheckNames(config).ok());
  config.root_uri = "192.0.2.9";  // another host's: CheckOwnHost says so, and waiting is of no use
  EXPECT_TRUE(CheckNames(config).ok());
  config = WithRoot("127.0.0.1");
  config.role = "worker";
  config.node_host = "nosuch.invalid";
  EXPECT_TRUE(CheckNames(config).message().starts_with("DMLC_NODE_HOST=nosuch.invalid: the name"));
}

TEST(LoopbackWarnings, AreAboutNodesThatOtherHostsDoNotReach) {
  Config config = WithRoot("192.0.2.1");
  config.role = "worker";
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    config.node_host = host;
    const std::vector<std::string> warnings = LoopbackWarnings(config);
    ASSERT_EQ(warnings.size(), 1U) << host;
    EXPECT_TRUE(warnings.front().starts_with(std::string("DMLC_NODE_HOST=") + host + " is "));
  }
  for (const char* root : {"127.0.0.1", "localhost"}) {
    config.root_uri = root;
    EXPECT_TRUE(LoopbackWarnings(config).empty()) << root;
  }
}

TEST(WhyUnresolved, IsEmptyForANameWithAnAddress) {
  EXPECT_EQ(WhyUnresolved("localhost"), "");
  EXPECT_NE(WhyUnresolved("nosuch.invalid"), "");
}

}  // namespace
}  // namespace bs::host
