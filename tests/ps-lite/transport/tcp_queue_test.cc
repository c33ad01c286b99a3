// What the kernel says of a connection's queue.
#include "transport/tcp_queue.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "transport/tcp_socket.h"

namespace ps::test {
namespace {

TEST(TcpQueue, CountsBytesThatThePeerHasNotAcknowledged) {
  bs::Result<TcpSocket> listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const int32_t port = LocalAddress(listener.value()).port();
  bs::Result<TcpSocket> near = ConnectTcp(ResolveTcp({"127.0.0.1", port}).value());
  ASSERT_TRUE(near.ok());
  const int fd = near.value().fd();
  const std::string much(size_t{64} << 20U, 'x');
  ssize_t sent = -1;
  for (int i = 0; i < 1000 && sent < 0; ++i) {
    sent = ::send(fd, much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ASSERT_GT(sent, 0);
  // The peer has not accepted: its kernel takes some, ours keeps the rest.
  EXPECT_GT(HeldBytes(fd), 0U);
  EXPECT_LE(HeldBytes(fd), static_cast<uint64_t>(sent));
  EXPECT_GT(LeastRoundTrip(fd), bs::Duration(0));
  EXPECT_LT(LeastRoundTrip(fd), std::chrono::seconds(10));
}

TEST(TcpQueue, HoldsNothingWithoutAConnection) {
  EXPECT_EQ(HeldBytes(-1), 0U);
  EXPECT_EQ(LeastRoundTrip(-1), bs::Duration(0));
}

}  // namespace
}  // namespace ps::test
