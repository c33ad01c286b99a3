// Connections whose two ends are on one host: what goes through memory that both share, and what
// does not.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "ps-lite/transport/shm/no_memory.h"
#include "ps-lite/transport/socket_conformance.h"
#include "ps-lite/transport/tcp/connection_peer.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

namespace ps::test {
namespace {

constexpr size_t kLongBytes = 128U << 10U;

// Little, so that it is full now and then.
template <uint64_t shared_bytes>
std::unique_ptr<TransportWorld> MakeSharingWorld() {
  return std::make_unique<LoopWorld>([](bs::LoopThread* loop, size_t) {
    return MakeTcpTransport(loop, {.shared_bytes = shared_bytes}, bs::Logger());
  });
}

INSTANTIATE_TEST_SUITE_P(Sharing, TransportConformance,
                         ::testing::Values(&MakeSharingWorld<2 * kLongBytes>));
INSTANTIATE_TEST_SUITE_P(Sharing, SocketConformance,
                         ::testing::Values(&MakeSharingWorld<2 * kLongBytes>));

// Descriptors of shared memory, and mappings of it.
size_t MemfdsOfProcess() {
  const auto is_ours = [](std::string_view where) {
    return where.find("/memfd:bytescheduler") != where.npos;
  };
  size_t found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) found += is_ours(line) ? 1 : 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    found += is_ours(std::filesystem::read_symlink(entry.path(), gone).string()) ? 1 : 0;
  }
  return found;
}

class SharedConnectionsTest : public ::testing::Test {
 protected:
  // Sends one short message, and returns when the connection shares memory with `peer`.
  void Share(TransportNode* node, ConnectionPeer* peer) {
    node->Send(Numbered(8, 0));
    peer->Await(1);
    ASSERT_TRUE(world_->WaitFor(shared_));
  }
  Message Long(int32_t number) const {
    Message message = Numbered(8, number);
    message.meta.extension.version = kExtensionVersion;
    message.meta.extension.op = Op::kPush;
    message.data.push_back(Frame::Borrow(bytes_, {}));
    return message;
  }

  // To a peer that takes three long messages, `reads` them, and hangs up; then to another.
  void Break(bool reads) {
    TransportNode node(world_.get());
    const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
    {
      ConnectionPeer peer(listener, Takes::kIt);
      Share(&node, &peer);
      for (int32_t i = 1; i <= 3; ++i) node.Send(Long(i));
      for (int turn = 0; turn < 3; ++turn) node.Flush();  // they have left
      if (reads) peer.Await(4);
    }
    ASSERT_TRUE(node.AwaitDisconnects(8, 1));
    for (int32_t i = 4; i <= 9; ++i) node.Send(Long(i));
    ConnectionPeer peer(listener, Takes::kIt);
    const auto& messages = peer.Await(6);
    for (const Message& message : messages) {
      EXPECT_TRUE(SameBytes(message.data[0].bytes(), bytes_));
    }
    EXPECT_EQ(NumbersOf(messages), (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
  }

  const std::vector<std::byte> bytes_ = Pattern(kLongBytes, 1);  // outlives the nodes
  uint64_t shared_bytes_ = 4 * kLongBytes;                       // of nodes that come
  bs::Notification shared_;                                      // a connection shares memory
  bs::Notification refused_;                                     // and one does not
  bs::Notification named_;                                       // the refusing node has logged why
  std::atomic<int> warnings_ = 0;
  bs::LoopThread* loop_ = nullptr;  // of the last node
  const std::unique_ptr<TransportWorld> world_ =
      std::make_unique<LoopWorld>([this](bs::LoopThread* loop, size_t) {
        loop_ = loop;
        const auto hear = [this](bs::LogLevel level, std::string_view line) {
          Note(line, "sharing memory with server 0", &shared_);
          Note(line, "memory was refused by server 0", &refused_);
          Note(line, "/proc/1/fd/0 is none, or another user's", &named_);
          if (level >= bs::LogLevel::kWarning) ++warnings_;
        };
        return MakeTcpTransport(loop, {.shared_bytes = shared_bytes_},
                                bs::Logger("", bs::LogLevel::kDebug, hear));
      });

 private:
  static void Note(std::string_view line, std::string_view wanted, bs::Notification* heard) {
    if (line.find(wanted) != line.npos && !heard->HasBeenNotified()) heard->Notify();
  }
};

TEST_F(SharedConnectionsTest, HaveRoomAgainForLaterMessages) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  Share(&node, &peer);
  const ReleaseCount released(world_.get());
  constexpr int kMessages = 50;
  for (int i = 0; i < kMessages; ++i) {
    peer.Await(peer.num_messages()).clear();
    const auto bytes = Pattern(kLongBytes, static_cast<uint64_t>(i));
    Message message = Long(i);
    message.data[0] = released.Borrow(bytes);
    node.Send(std::move(message));
    EXPECT_TRUE(SameBytes(peer.Await(1)[0].data[0].bytes(), bytes));
  }
  EXPECT_TRUE(released.Await(kMessages));
  EXPECT_LT(peer.read_bytes(), kLongBytes);
}

TEST_F(SharedConnectionsTest, HoldLittleThatAnUrgentMessageCannotOvertake) {
  shared_bytes_ = 64 * kLongBytes;
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  Share(&node, &peer);
  for (int32_t i = 0; i < 60; ++i) node.Send(Long(i));
  for (int turn = 0; turn < 10; ++turn) node.Flush();
  node.Send(Numbered(8, 100, 1));
  const std::vector<int32_t> numbers = NumbersOf(peer.Await(62));
  const auto ahead = std::find(numbers.begin(), numbers.end(), 100) - numbers.begin();
  // And what Share sent, and what the kernel holds, which is less than two.
  EXPECT_LE(ahead, SharedOutbox::kMostUnreadBytes / kLongBytes + 3);
}

TEST_F(SharedConnectionsTest, SendTheBytesOnceThereIsNoMemoryAndSaySoOnce) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  Share(&node, &peer);
  node.Send(Long(1));
  peer.Await(2);
  std::atomic<bool> refuses = false;
  loop_->Post([&] { refuses = RefusePopulating(EFAULT); });
  node.Flush();
  if (!refuses) GTEST_SKIP() << "the kernel filters no calls of a thread";
  for (int32_t i = 2; i <= 4; ++i) node.Send(Long(i));
  auto& messages = peer.Await(5);
  for (size_t i = 1; i <= 4; ++i) EXPECT_TRUE(SameBytes(messages[i].data[0].bytes(), bytes_));
  EXPECT_GT(peer.read_bytes(), 3 * kLongBytes);
  EXPECT_EQ(warnings_, 1);
  messages.clear();
  const size_t before = peer.read_bytes();
  node.Send(Long(5));
  EXPECT_TRUE(SameBytes(peer.Await(1)[0].data[0].bytes(), bytes_));
  EXPECT_LT(peer.read_bytes() - before, kLongBytes) << "what has memory is used on";
}

TEST_F(SharedConnectionsTest, SendTheBytesWhereThereWasNeverMemory) {
  TransportNode node(world_.get());
  std::atomic<bool> refuses = false;
  loop_->Post([&] { refuses = RefusePopulating(ENOMEM); });
  node.Flush();
  if (!refuses) GTEST_SKIP() << "the kernel filters no calls of a thread";
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  node.Send(Long(1));
  EXPECT_TRUE(SameBytes(peer.Await(1)[0].data[0].bytes(), bytes_));
  EXPECT_FALSE(peer.offered());
  EXPECT_EQ(warnings_, 1);
}

TEST_F(SharedConnectionsTest, SendOnlyWhereLongFramesLieAndTheBytesWhereThereIsNoRoom) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  Share(&node, &peer);
  for (int32_t i = 1; i <= 6; ++i) node.Send(Long(i));
  auto& messages = peer.Await(7);
  for (size_t i = 1; i <= 6; ++i) EXPECT_TRUE(SameBytes(messages[i].data[0].bytes(), bytes_));
  // Four have room, and are held here.
  EXPECT_GE(peer.read_bytes(), 2 * kLongBytes);
  EXPECT_LT(peer.read_bytes(), 3 * kLongBytes);
  messages.clear();
  const size_t before = peer.read_bytes();
  for (int32_t i = 0; i < 4; ++i) node.Send(Long(i));
  peer.Await(4);
  EXPECT_LT(peer.read_bytes() - before, kLongBytes);
}

TEST_F(SharedConnectionsTest, BreakWithTheirMemoryAndLoseNoMessageBehind) { Break(true); }
TEST_F(SharedConnectionsTest, BreakBeforeTheBytesInTheirMemoryAreRead) { Break(false); }

TEST_F(SharedConnectionsTest, SendTheBytesToAPeerThatTakesNoMemoryAndHaveNoneForIt) {
  for (const Takes takes : {Takes::kNone, Takes::kNoneWhenOffered}) {
    TransportNode node(world_.get());
    const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
    ConnectionPeer peer(listener, takes);
    for (int32_t i = 0; i < 3; ++i) node.Send(Long(i));
    for (const Message& message : peer.Await(3)) {
      EXPECT_TRUE(SameBytes(message.data[0].bytes(), bytes_));
    }
    EXPECT_EQ(peer.offered(), takes == Takes::kNoneWhenOffered);
    EXPECT_TRUE(!peer.offered() || world_->WaitFor(refused_));
    EXPECT_EQ(MemfdsOfProcess(), 0U);
  }
}

TEST_F(SharedConnectionsTest, OfferNothingUnlessToldTo) {
  shared_bytes_ = 0;
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node, kLongBytes / 4);
  ConnectionPeer peer(listener, Takes::kIt);
  node.Send(Long(1));
  EXPECT_TRUE(SameBytes(peer.Await(1)[0].data[0].bytes(), bytes_));
  EXPECT_FALSE(peer.offered());
}

TEST_F(SharedConnectionsTest, ReadAPeerWithAWrongOfferOfMemoryAndSayWhy) {
  const auto [node, address] = BoundNode(world_.get());
  const RawPeer peer(address);
  const std::string offer = ZmtpMemory("1 1 0 32768 aa");
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + offer + offer +
            FrameOf(StockMeta(), true) + FrameOf("data", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].data[0].text(), "data");
  EXPECT_TRUE(world_->WaitFor(named_));
  std::string reference;
  AppendReference(0, 100, false, &reference);
  peer.Send(FrameOf(StockMeta(), true) + reference);
  peer.AwaitEnd();
}

}  // namespace
}  // namespace ps::test
