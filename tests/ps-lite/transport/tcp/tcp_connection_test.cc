// TcpConnection: the order in which messages leave its queue, and which are lost.
#include "transport/tcp/tcp_connection.h"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/loop_world.h"
#include "ps-lite/transport/tcp/connection_peer.h"
#include "ps-lite/transport/transport_node.h"
#include "transport/tcp/tcp_transport.h"
#include "wire/fusion.h"

namespace ps::test {
namespace {

std::unique_ptr<LoopWorld> MakeWorld(const TcpOptions& options) {
  return std::make_unique<LoopWorld>([options](bs::LoopThread* loop, size_t /*number*/) {
    return MakeTcpTransport(loop, options, bs::Logger());
  });
}

// Messages that are sent before the peer listens wait, and leave fused into as few as possible.
TEST(Fusion, SmallMessagesThatWaitForAPeerTravelInOneUpToItsBytes) {
  struct Case {
    uint64_t fusion_bytes;
    size_t payload_bytes;
    uint64_t fused;  // of 64; 16 of those behind one that is long
  };
  for (const Case& c : {Case{.fusion_bytes = 0, .payload_bytes = 100, .fused = 0},
                        Case{.fusion_bytes = 16U << 10U, .payload_bytes = 0, .fused = 61},
                        Case{.fusion_bytes = 16U << 10U, .payload_bytes = 100, .fused = 61},
                        Case{.fusion_bytes = 4096, .payload_bytes = 1024, .fused = 48},
                        Case{.fusion_bytes = 1000, .payload_bytes = 1024, .fused = 0}}) {
    const auto sent = std::make_shared<SentCounts>();
    const auto world = MakeWorld({.fusion_bytes = c.fusion_bytes, .sent = sent});
    const Address address = world->FreeAddress();
    TransportNode sender(world.get());
    sender.Connect(8, address, 9);
    const auto send = [&](int32_t number, size_t bytes) {
      Message message = Native(8, number);
      if (bytes > 0) message.data.push_back(Frame::Copy(std::string(bytes, 'x')));
      sender.Send(std::move(message));
    };
    for (int32_t i = 0; i < 48; ++i) send(i, c.payload_bytes);
    send(48, 20000);
    for (int32_t i = 49; i < 65; ++i) send(i, c.payload_bytes);
    sender.Flush();
    TransportNode receiver(world.get());
    ASSERT_TRUE(receiver.Bind(address).ok());
    ASSERT_TRUE(receiver.AwaitMessages(65));
    std::vector<int32_t> numbers = NumbersOf(receiver.TakeMessages());
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
    EXPECT_EQ(numbers.size(), 65U);
    EXPECT_EQ(sent->messages, 65U);
    // A few less where what may be ahead of the network is full.
    EXPECT_LE(sent->fused, c.fused) << c.fusion_bytes << " " << c.payload_bytes;
    EXPECT_GE(sent->fused, c.fused * 3 / 4) << c.fusion_bytes << " " << c.payload_bytes;
  }
}

// Returns how many bytes the connection has given to the kernel that `peer` has not read.  The
// connection belongs to this process.
size_t BytesInKernel(const ConnectionPeer& peer) {
  int read_bytes = 0;
  int sent_bytes = 0;
  const int connection = peer.FindConnection();
  // In this order bytes that move meanwhile count twice; in the other they would be left out.
  EXPECT_EQ(::ioctl(connection, SIOCOUTQ, &sent_bytes), 0) << connection;
  EXPECT_EQ(::ioctl(peer.fd(), FIONREAD, &read_bytes), 0);
  return static_cast<size_t>(sent_bytes) + static_cast<size_t>(read_bytes);
}

// Expects that a stalled connection has taken few bytes ahead of an urgent message.  Those reach
// the reader first, though the kernel did not have them when the message was sent.
void ExpectFewAhead(size_t size_bytes, uint64_t fusion_bytes) {
  constexpr size_t kAheadBytes = 16U << 10U;
  const auto many = static_cast<int32_t>((4U << 20U) / size_bytes);
  const auto sent = std::make_shared<SentCounts>();
  const auto world = MakeWorld({.fusion_bytes = fusion_bytes, .sent = sent});
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node, 2 << 10);
  ConnectionPeer peer(listener, Takes::kNone);
  node.Send(Native(8, -1));
  peer.Await(1);
  const std::string bytes(size_bytes, 'x');
  for (int32_t i = 0; i < many; ++i) {
    Message message = Native(8, i);
    message.data.push_back(Frame::Copy(bytes));
    node.Send(std::move(message));
  }
  node.Flush();  // the kernel takes no more
  node.Send(Native(8, many, 1));
  node.Flush();
  // Nothing is read until then, so it had no more when the urgent one came.
  const size_t kernel_bytes = BytesInKernel(peer);
  const auto urgent = [many](const Message& message) { return message.meta.timestamp == many; };
  const auto& messages =
      peer.AwaitFor([&] { return std::ranges::any_of(peer.messages(), urgent); });
  const auto ahead = std::ranges::find_if(messages, urgent) - messages.begin() - 1;
  EXPECT_LT(kernel_bytes, static_cast<size_t>(many) * size_bytes / 2) << "it has stalled";
  // One is taken however little room is left for it.
  EXPECT_LE(static_cast<size_t>(ahead) * size_bytes, kernel_bytes + kAheadBytes + size_bytes)
      << size_bytes << " " << fusion_bytes << " " << kernel_bytes;
  EXPECT_EQ(sent->fused > 0, fusion_bytes > 0);
}

TEST(TcpConnection, APeerThatIsNoNodeOfOursIsToldBeforeAnythingIsSent) {
  const auto world = MakeWorld({});
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node, 4096);
  ConnectionPeer peer(listener, Takes::kNone);
  node.Send(Numbered(8, 1));
  EXPECT_EQ(peer.Await(1).front().meta.timestamp, 1);
  EXPECT_TRUE(node.is_foreign(8));
}

TEST(TcpConnection, AnUrgentMessageOvertakesAllButSixteenKibOutsideTheKernel) {
  for (const size_t size_bytes : {700U, 2000U, 5000U}) {
    for (const uint64_t fusion_bytes : {uint64_t{0}, uint64_t{16U << 10U}, kMostFusedBytes}) {
      ExpectFewAhead(size_bytes, fusion_bytes);
    }
  }
}

TEST(TcpConnection, FusedMessagesKeepTheOrderOfUrgencyAndOvertakeNoLongMessage) {
  constexpr int32_t kMany = 211;  // prime
  const auto sent = std::make_shared<SentCounts>();
  const auto world = MakeWorld({.sent = sent});
  const Address address = world->FreeAddress();
  TransportNode sender(world.get());
  sender.Connect(8, address, 9);
  uint64_t data_bytes = 0;
  for (int32_t i = 0; i < kMany; ++i) {
    const int32_t priority = i * 37 % kMany;
    Message message = Native(8, kMany - 1 - priority, priority);  // the number is its place
    // Two of nine are too long to travel with others, alone or for what is left.
    const size_t size_bytes = priority % 9 == 0 ? 20000 : priority % 9 == 4 ? 15000 : 300;
    data_bytes += size_bytes;
    message.data.push_back(Frame::Copy(std::string(size_bytes, 'x')));
    sender.Send(std::move(message));
  }
  sender.Flush();
  TransportNode receiver(world.get());
  ASSERT_TRUE(receiver.Bind(address).ok());
  ASSERT_TRUE(receiver.AwaitMessages(kMany));
  EXPECT_EQ(NumbersOf(receiver.TakeMessages()), Count(0, kMany));
  EXPECT_GT(sent->fused, kMany / 3) << "most travelled with others";
  EXPECT_GT(sent->tcp_bytes, data_bytes);
  EXPECT_LT(sent->tcp_bytes, data_bytes + uint64_t{kMany} * 200) << "heads are small";
}

TEST(TcpConnection, TheWaterMarkCountsMessagesHoweverTheyTravel) {
  const auto sent = std::make_shared<SentCounts>();
  const auto world = MakeWorld({.ahead_messages = 4, .sent = sent});
  const Address address = world->FreeAddress();
  TransportNode sender(world.get());
  sender.Connect(8, address, 9);
  for (int32_t i = 0; i < 64; ++i) sender.Send(Native(8, i));
  sender.Flush();
  TransportNode receiver(world.get());
  ASSERT_TRUE(receiver.Bind(address).ok());
  ASSERT_TRUE(receiver.AwaitMessages(64));
  EXPECT_EQ(NumbersOf(receiver.TakeMessages()), Count(0, 64));
  EXPECT_EQ(sent->fused, 48U);
}

TEST(TcpConnection, AFusedMessageThatIsCutOffIsLostAndMessagesBehindItAreNot) {
  constexpr int32_t kMany = 2000;
  const auto sent = std::make_shared<SentCounts>();
  const auto world = MakeWorld({.fusion_bytes = 16U << 10U, .sent = sent});
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node, 16 << 10);
  const std::string bytes(2000, 'x');
  std::vector<int32_t> numbers;
  {
    ConnectionPeer peer(listener, Takes::kNone);
    for (int32_t i = 0; i < kMany; ++i) {
      Message message = Native(8, i);
      message.data.push_back(Frame::Copy(bytes));
      node.Send(std::move(message));
    }
    numbers = NumbersOf(peer.AwaitFor([&] { return peer.num_messages() > 0; }));
  }
  ASSERT_TRUE(node.AwaitDisconnects(8, 1));
  ConnectionPeer peer(listener, Takes::kNone);
  const auto last = [&] { return peer.messages().back().meta.timestamp == kMany - 1; };
  const auto rest = NumbersOf(peer.AwaitFor([&] { return peer.num_messages() > 0 && last(); }));
  EXPECT_GT(rest.front(), numbers.back() + 1) << "the kernel had some";
  EXPECT_LT(rest.front(), kMany / 2);
  EXPECT_EQ(rest, Count(rest.front(), kMany));
  EXPECT_GT(sent->fused, kMany / 2) << "most travelled with others";
}

}  // namespace
}  // namespace ps::test
