// What a link takes out of its queue, and what it loses.
#include "tcp_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fusion.h"
#include "ps-lite/link_peer.h"
#include "ps-lite/loop_world.h"
#include "ps-lite/transport_node.h"
#include "tcp_transport.h"

namespace ps::testing {
namespace {

std::unique_ptr<LoopWorld> MakeWorld(const TcpOptions& options) {
  return std::make_unique<LoopWorld>([options](bs::LoopThread* loop, size_t /*number*/) {
    return MakeTcpTransport(loop, options, bs::Logger());
  });
}

// What is sent while nobody listens waits, and leaves in as few messages as it fits in.
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

// Bytes of messages that reach a slow reader before one that was sent when the link had stalled.
size_t BytesAhead(const TcpOptions& options) {
  constexpr size_t kBytes = 2000;
  constexpr int32_t kMany = 2000;
  const auto world = MakeWorld(options);
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node, 2 << 10);
  LinkPeer peer(listener, Takes::kNone);
  node.Send(Native(8, -1));
  peer.Await(1);
  const std::string bytes(kBytes, 'x');
  for (int32_t i = 0; i < kMany; ++i) {
    Message message = Native(8, i);
    message.data.push_back(Frame::Copy(bytes));
    node.Send(std::move(message));
  }
  // Until the kernel takes no more.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  node.Flush();
  node.Send(Native(8, kMany, 1));
  node.Flush();
  const auto urgent = [](const Message& message) { return message.meta.timestamp == kMany; };
  const auto& messages =
      peer.AwaitFor([&] { return std::ranges::any_of(peer.messages(), urgent); });
  const auto found = std::ranges::find_if(messages, urgent);
  return static_cast<size_t>(found - messages.begin()) * kBytes;
}

TEST(TcpLink, FusedMessagesAreNoMoreAheadOfAnUrgentOneThanOthers) {
  // How much the kernel has taken by then depends on who ran when.
  size_t most_alone = 0;
  size_t least_fused = std::numeric_limits<size_t>::max();
  for (int i = 0; i < 3; ++i) {
    most_alone = std::max(most_alone, BytesAhead({.fusion_bytes = 0}));
    least_fused = std::min(least_fused, BytesAhead({.fusion_bytes = kMostFusedBytes}));
  }
  EXPECT_LE(least_fused, most_alone + (8U << 10U));
}

TEST(TcpLink, TheWaterMarkCountsMessagesHoweverTheyTravel) {
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

TEST(TcpLink, AFusedMessageThatIsCutOffIsLostAndThoseBehindItAreNot) {
  constexpr int32_t kMany = 2000;
  const auto sent = std::make_shared<SentCounts>();
  const auto world = MakeWorld({.fusion_bytes = 16U << 10U, .sent = sent});
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node, 16 << 10);
  const std::string bytes(2000, 'x');
  std::vector<int32_t> numbers;
  {
    LinkPeer peer(listener, Takes::kNone);
    for (int32_t i = 0; i < kMany; ++i) {
      Message message = Native(8, i);
      message.data.push_back(Frame::Copy(bytes));
      node.Send(std::move(message));
    }
    numbers = NumbersOf(peer.AwaitFor([&] { return peer.num_messages() > 0; }));
  }
  ASSERT_TRUE(node.AwaitDisconnects(8, 1));
  LinkPeer peer(listener, Takes::kNone);
  const auto last = [&] { return peer.messages().back().meta.timestamp == kMany - 1; };
  const auto rest = NumbersOf(peer.AwaitFor([&] { return peer.num_messages() > 0 && last(); }));
  EXPECT_GT(rest.front(), numbers.back() + 1) << "the kernel had some";
  EXPECT_LT(rest.front(), kMany / 2);
  EXPECT_EQ(rest, Count(rest.front(), kMany));
  EXPECT_GT(sent->fused, kMany / 2) << "most travelled with others";
}

}  // namespace
}  // namespace ps::testing
