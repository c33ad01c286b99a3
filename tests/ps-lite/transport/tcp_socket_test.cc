// Sockets: the hosts that they reach, errors about bad addresses, and how the kernel sends.
#include "transport/tcp_socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ps::test {
namespace {

using ::testing::HasSubstr;

constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS

int OptionOf(const TcpSocket& socket, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.fd(), IPPROTO_TCP, option, &value, &size), 0);
  return value;
}

int StateOf(const TcpSocket& socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  EXPECT_EQ(::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info.tcpi_state;
}

// A connection to a listener on loopback, which has not accepted it.
std::pair<TcpSocket, TcpSocket> Connected() {
  auto listener = ListenTcp({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok()) << listener.status().ToString();
  auto connecting = ConnectTcp(LocalAddress(listener.value()));
  EXPECT_TRUE(connecting.ok()) << connecting.status().ToString();
  return {std::move(listener.value()), std::move(connecting.value())};
}

TEST(WithinHost, FollowsFromTheAddresses) {
  const auto [listener, socket] = Connected();
  EXPECT_TRUE(WithinHost(socket.fd()));
  EXPECT_FALSE(WithinHost(listener.fd())) << "nobody is at its other end";
  EXPECT_FALSE(WithinHost(-1));
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const TcpSocket first(ends[0]);
  const TcpSocket second(ends[1]);
  EXPECT_FALSE(WithinHost(first.fd()));
}

TEST(TuneSending, LetsTheKernelHoldLittle) {
  const auto [listener, socket] = Connected();
  TuneSending(socket.fd(), 0);
  EXPECT_EQ(OptionOf(socket, TCP_NOTSENT_LOWAT), 0);
  TuneSending(socket.fd(), 4096);
  EXPECT_EQ(OptionOf(socket, TCP_NOTSENT_LOWAT), 4096);
}

TEST(TuneSending, RetransmitsOftenAndGivesUpNoSooner) {
  const auto [listener, socket] = Connected();
  const int probe = 3000;
  const TcpSocket other(::socket(AF_INET, SOCK_STREAM, 0));
  const bool known = ::setsockopt(other.fd(), IPPROTO_TCP, kRtoMaxMs, &probe, sizeof(probe)) == 0;
  TuneSending(socket.fd(), 0);
  // Without the first the second would only make the kernel give up sooner.
  EXPECT_EQ(OptionOf(socket, TCP_USER_TIMEOUT), known ? 2'073'600'000 : 0);
  if (!known) GTEST_SKIP() << "this kernel has no TCP_RTO_MAX_MS";
  EXPECT_EQ(OptionOf(socket, kRtoMaxMs), 1000);
}

TEST(TuneSending, LeavesSocketsOtherThanTcpAlone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const TcpSocket first(ends[0]);
  const TcpSocket second(ends[1]);
  TuneSending(first.fd(), 4096);
  TuneSending(-1, 4096);
  EXPECT_EQ(::write(first.fd(), "x", 1), 1);
}

TEST(SinceAcknowledged, SaysNothingWhileTheConnectionIsBeingMade) {
  const auto listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(::listen(listener.value().fd(), 0), 0);  // a queue for one
  std::vector<TcpSocket> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(std::move(ConnectTcp(LocalAddress(listener.value())).value()));
  }
  ASSERT_EQ(StateOf(callers.back()), TCP_SYN_SENT);
  EXPECT_EQ(SinceAcknowledged(callers.back().fd()), bs::Duration(0));
}

TEST(SinceAcknowledged, DoesNotTrustAKernelThatAsksLessAndLessOften) {
  const auto [listener, socket] = Connected();
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  wait();
  EXPECT_GT(SinceAcknowledged(socket.fd()), bs::Duration(0)) << "nothing waits to be sent";
  const std::string bytes(1 << 20, 'x');
  while (::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) wait();
  wait();
  EXPECT_EQ(SinceAcknowledged(socket.fd()), bs::Duration(0)) << "nobody reads, the window is full";
  TuneSending(socket.fd(), 0);
  if (OptionOf(socket, TCP_USER_TIMEOUT) == 0) GTEST_SKIP() << "this kernel has no TCP_RTO_MAX_MS";
  wait();
  EXPECT_GT(SinceAcknowledged(socket.fd()), bs::Duration(0));
}

TEST(DescribePeer, NamesTheAddressOfThePeer) {
  const auto [listener, socket] = Connected();
  const int port = LocalAddress(listener).port();
  EXPECT_EQ(DescribePeer(socket.fd()), "127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(DescribePeer(listener.fd()), "gone already");
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const TcpSocket first(ends[0]);
  const TcpSocket second(ends[1]);
  EXPECT_EQ(DescribePeer(first.fd()), "on this host");
}

TEST(Ports, OnlyAListenerMayTakeAnyFreeOne) {
  EXPECT_TRUE(CheckLocalPort({"node7", 0}).ok());
  EXPECT_TRUE(CheckRemotePort({"node7", 65535}).ok());
  EXPECT_EQ(CheckRemotePort({"node7", 0}).message(), "port 0 of node7: want 1 to 65535");
  EXPECT_EQ(CheckLocalPort({"node7", 65536}).message(), "port 65536 of node7: want 0 to 65535");
  EXPECT_EQ(CheckLocalPort({"node7", -1}).message(), "port -1 of node7: want 0 to 65535");
}

TEST(ResolveTcp, KnowsNumbersAndNamesAndReportsUnknownHosts) {
  EXPECT_TRUE(IsNumeric("10.0.0.1"));
  EXPECT_TRUE(IsNumeric("*"));
  EXPECT_FALSE(IsNumeric("localhost"));
  EXPECT_EQ(ResolveTcp({"10.0.0.1", 7}).value().host(), "10.0.0.1");
  EXPECT_TRUE(ResolveTcp({"localhost", 7}).value().is_loopback());
  EXPECT_EQ(ResolveTcp({"*", 7}).value().host(), "0.0.0.0");
  EXPECT_THAT(ResolveTcp({"", 7}).status().message(), HasSubstr("tcp://:7: "));
}

TEST(BindError, HasTheCodeOfTheCauseAndTheAddress) {
  const auto code = [](int error) { return BindError("tcp://node7:9000", error).code(); };
  EXPECT_EQ(code(EADDRINUSE), bs::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(EADDRNOTAVAIL), bs::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(EACCES), bs::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(EMFILE), bs::StatusCode::kResourceExhausted);
  EXPECT_THAT(BindError("tcp://node7:9000", EADDRINUSE).message(), HasSubstr("tcp://node7:9000"));
}

}  // namespace
}  // namespace ps::test
