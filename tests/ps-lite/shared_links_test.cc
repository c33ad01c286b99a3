// Links whose two ends are on one host: what goes through memory that both share, and what does
// not.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/notification.h"
#include "ps-lite/socket_conformance.h"
#include "shared_memory.h"
#include "tcp_socket.h"
#include "tcp_transport.h"
#include "zmtp.h"

namespace ps::testing {
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

// The other end of a link, which takes the memory that it is offered if it `shares`.
class LinkPeer {
 public:
  LinkPeer(const TcpSocket& listener, bool shares)
      : socket_(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)),
        input_({scratch_, std::make_shared<BlockPool>()},
               {.on_greeting = [this] { Send(ZmtpGreeting() + ZmtpReady("ROUTER", "")); },
                .on_ready = {},
                .on_memory =
                    [this, shares](std::string_view offer) {
                      offered_ = true;
                      if (!shares) return;
                      input_.Share(SharedInbox::Open(offer).value());
                      Send(ZmtpMemoryTaken());
                    },
                .on_message =
                    [this](bs::Result<Message> message) {
                      messages_.push_back(std::move(message.value()));
                    }}) {}

  bool offered() const { return offered_; }
  size_t read_bytes() const { return read_bytes_; }
  // Reads until there are so many.
  std::vector<Message>& Await(size_t messages) {
    while (messages_.size() < messages) {
      input_.BeginTurn();
      if (input_.waiting()) {
        EXPECT_TRUE(input_.Continue().ok());
        continue;
      }
      const ZmtpInput::Rooms rooms = input_.MakeRooms();
      const ssize_t got = ::readv(socket_.fd(), rooms.data(), rooms.size());
      if (got <= 0 || !input_.Filled(static_cast<size_t>(got)).ok()) break;
      read_bytes_ += static_cast<size_t>(got);
    }
    EXPECT_EQ(messages_.size(), messages);
    return messages_;
  }

 private:
  void Send(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  const TcpSocket socket_;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(ZmtpInput::kScratchBytes);
  ZmtpInput input_;
  bool offered_ = false;
  size_t read_bytes_ = 0;
  std::vector<Message> messages_;
};

class SharedLinksTest : public ::testing::Test {
 protected:
  // Where the node connects to; who accepts there waits for it.
  static TcpSocket ListenFor(TransportNode* node) {
    TcpSocket listener = std::move(ListenTcp({"127.0.0.1", 0}).value());
    EXPECT_EQ(::fcntl(listener.fd(), F_SETFL, 0), 0);
    node->Connect(8, {"127.0.0.1", ntohs(LocalAddress(listener).sin_port)}, 9);
    return listener;
  }
  // Sends one short message, and returns when the link shares memory with `peer`.
  void Share(TransportNode* node, LinkPeer* peer) {
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

  const std::vector<std::byte> bytes_ = Pattern(kLongBytes, 1);  // outlives the nodes
  bs::Notification shared_;                                      // a link shares memory
  const std::unique_ptr<TransportWorld> world_ =
      std::make_unique<LoopWorld>([this](bs::LoopThread* loop, size_t) {
        const auto hear = [this](bs::LogLevel, std::string_view line) {
          const bool said = line.find("sharing memory with server 0") != std::string_view::npos;
          if (said && !shared_.HasBeenNotified()) shared_.Notify();
        };
        return MakeTcpTransport(loop, {.shared_bytes = 4 * kLongBytes},
                                bs::Logger("", bs::LogLevel::kDebug, hear));
      });
};

TEST_F(SharedLinksTest, HaveRoomAgainForWhatComesLater) {
  const auto [node, address] = BoundNode(world_.get());
  TransportNode sender(world_.get());
  sender.Connect(8, address, 9);
  const ReleaseCount released(world_.get());
  constexpr int kMessages = 50;
  for (int i = 0; i < kMessages; ++i) {
    const auto bytes = Pattern(kLongBytes, static_cast<uint64_t>(i));
    Message message = Long(i);
    message.data[0] = released.Borrow(bytes);
    sender.Send(std::move(message));
    ASSERT_TRUE(node->AwaitMessages(1));
    EXPECT_TRUE(SameBytes(node->TakeMessages()[0].data[0].bytes(), bytes));
  }
  EXPECT_TRUE(released.Await(kMessages));
}

TEST_F(SharedLinksTest, SendOnlyWhereLongFramesLieAndTheBytesWhereThereIsNoRoom) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node);
  LinkPeer peer(listener, true);
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

TEST_F(SharedLinksTest, BreakWithTheirMemoryAndLoseNoMessageBehind) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node);
  {
    LinkPeer peer(listener, true);
    Share(&node, &peer);
    for (int32_t i = 1; i <= 3; ++i) node.Send(Long(i));
    peer.Await(4);
  }
  ASSERT_TRUE(node.AwaitDisconnects(8, 1));
  for (int32_t i = 4; i <= 9; ++i) node.Send(Long(i));
  LinkPeer peer(listener, true);
  const auto& messages = peer.Await(6);
  for (const Message& message : messages) {
    EXPECT_TRUE(SameBytes(message.data[0].bytes(), bytes_));
  }
  EXPECT_EQ(NumbersOf(messages), (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
}

TEST_F(SharedLinksTest, SendTheBytesToWhoTakesNoMemory) {
  TransportNode node(world_.get());
  const TcpSocket listener = ListenFor(&node);
  LinkPeer peer(listener, false);
  for (int32_t i = 0; i < 3; ++i) node.Send(Long(i));
  for (const Message& message : peer.Await(3)) {
    EXPECT_TRUE(SameBytes(message.data[0].bytes(), bytes_));
  }
  EXPECT_TRUE(peer.offered());
}

TEST_F(SharedLinksTest, OfferNothingUnlessToldTo) {
  const auto world = MakeSharingWorld<0>();
  TransportNode node(world.get());
  const TcpSocket listener = ListenFor(&node);
  LinkPeer peer(listener, true);
  node.Send(Long(1));
  EXPECT_TRUE(SameBytes(peer.Await(1)[0].data[0].bytes(), bytes_));
  EXPECT_FALSE(peer.offered());
}

TEST_F(SharedLinksTest, ReadWhoOffersWhatIsNoMemoryAllTheSame) {
  const auto [node, address] = BoundNode(world_.get());
  const RawPeer peer(address);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9", "1 1 0 32768 aa") +
            FrameOf(StockMeta(), true) + FrameOf("data", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].data[0].text(), "data");
  std::string reference;
  AppendReference(0, 100, false, &reference);
  peer.Send(FrameOf(StockMeta(), true) + reference);
  peer.AwaitEnd();
}

}  // namespace
}  // namespace ps::testing
