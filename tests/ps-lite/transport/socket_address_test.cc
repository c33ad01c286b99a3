// Addresses of both kinds: parsed, written, compared, and looked up.
#include "transport/socket_address.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/host_networks.h"
#include "transport/tcp_socket.h"

namespace ps::test {
namespace {

TEST(SocketAddress, NumbersOfBothKindsAreParsedAndWritten) {
  for (const std::string host : {"10.0.0.1", "127.9.9.9", "::1", "fd00::1", "2001:db8::2"}) {
    const auto address = SocketAddress::Parse(host);
    ASSERT_TRUE(address) << host;
    EXPECT_EQ(address->host(), host);
    EXPECT_EQ(address->is_ipv6(), host.find(':') != std::string::npos);
    EXPECT_EQ(address->is_loopback(), host == "127.9.9.9" || host == "::1");
  }
}

TEST(SocketAddress, AnIpv4AddressInIpv6FormIsTheIpv4Address) {
  const auto address = SocketAddress::Parse("::ffff:127.0.0.1");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->host(), "127.0.0.1");
  EXPECT_TRUE(address->is_loopback());
  EXPECT_TRUE(address->SameHost(*SocketAddress::Parse("127.0.0.1")));
}

TEST(SocketAddress, NamesAndOddTextsAreNone) {
  for (const char* host : {"localhost", "", "10.0.0.256", "[::1]", "fd00::1%nosuch", ":"}) {
    EXPECT_FALSE(SocketAddress::Parse(host)) << host;
  }
}

TEST(SocketAddress, PortsAreKept) {
  for (const char* host : {"10.0.0.1", "fd00::1"}) {
    SocketAddress address = SocketAddress::Parse(host).value();
    EXPECT_EQ(address.port(), 0);
    address.set_port(65535);
    EXPECT_EQ(address.port(), 65535);
    EXPECT_EQ(address.host(), host);
  }
}

TEST(SocketAddress, LinkLocalAddressesAreKnown) {
  EXPECT_TRUE(SocketAddress::Parse("fe80::1")->is_link_local());
  EXPECT_FALSE(SocketAddress::Parse("fd00::1")->is_link_local());
  EXPECT_FALSE(SocketAddress::Parse("169.254.0.1")->is_link_local());
}

TEST(LookUp, SaysWhyANameHasNoAddress) {
  EXPECT_NE(LookUp("nosuch.invalid").why, "");
  EXPECT_NE(LookUp("").why, "");
  const HostAddresses found = LookUp("localhost");
  EXPECT_EQ(found.why, "");
  ASSERT_FALSE(found.found.empty());
  EXPECT_TRUE(found.found.front().is_loopback());
}

TEST(SourceFor, IsTheHostsOwnAddressOfThatRoute) {
  EXPECT_EQ(SourceFor(*SocketAddress::Parse("127.9.9.9"))->host(), "127.0.0.1");
}

TEST(Ipv6, ConnectionsAreDescribedAndStayWithinTheHost) {
  if (!bs::HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  auto listener = ListenTcp({"::1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  const SocketAddress where = LocalAddress(listener.value());
  auto socket = ConnectTcp(where);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(DescribePeer(socket.value().fd()), "[::1]:" + std::to_string(where.port()));
  EXPECT_TRUE(WithinHost(socket.value().fd()));
}

TEST(Ipv6, TheAddressOfAllTakesConnectionsOfBothKinds) {
  if (!bs::HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  auto listener = ListenTcp({"::", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  SocketAddress v4 = SocketAddress::Parse("127.0.0.1").value();
  v4.set_port(LocalAddress(listener.value()).port());
  auto socket = ConnectTcp(v4);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  pollfd accepted{.fd = listener.value().fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&accepted, 1, 5000), 1);
  const TcpSocket other(::accept(listener.value().fd(), nullptr, nullptr));
  EXPECT_TRUE(DescribePeer(other.fd()).starts_with("127.0.0.1:")) << DescribePeer(other.fd());
}

}  // namespace
}  // namespace ps::test
