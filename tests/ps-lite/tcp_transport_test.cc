// The TCP transport: the conformance suite, alone and against libzmq in both directions, and peers
// that are hostile.
#include "tcp_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport_conformance.h"
#include "wire.h"
#include "zmq_transport.h"
#include "zmtp.h"

namespace ps::testing {
namespace {

using ::testing::HasSubstr;

enum class Kinds { kTcp, kZmqFirst, kTcpFirst };

// Nodes of the TCP transport, or of it and of libzmq's in turns.
class TcpWorld final : public TransportWorld {
 public:
  explicit TcpWorld(Kinds kinds) : kinds_(kinds) {}
  bs::Executor* NewExecutor() override {
    loops_.push_back(std::make_unique<bs::LoopThread>("bs-io"));
    return loops_.back().get();
  }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    auto* const loop = static_cast<bs::LoopThread*>(executor);
    const bool odd = loops_.size() % 2 == 1;
    const bool zmq = kinds_ != Kinds::kTcp && odd == (kinds_ == Kinds::kZmqFirst);
    if (zmq) return MakeZmqTransport(loop, {}, bs::Logger());
    return MakeTcpTransport(loop, {}, bs::Logger());
  }
  bool WaitFor(const bs::Notification& notification) override {
    return notification.WaitFor(std::chrono::seconds(60));
  }
  Address AnyAddress() override { return {"127.0.0.1", 0}; }

 private:
  const Kinds kinds_;
  std::vector<std::unique_ptr<bs::LoopThread>> loops_;
};

template <Kinds kinds>
std::unique_ptr<TransportWorld> MakeWorld() {
  return std::make_unique<TcpWorld>(kinds);
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, ::testing::Values(&MakeWorld<Kinds::kTcp>));
INSTANTIATE_TEST_SUITE_P(ZmqFirst, TransportConformance,
                         ::testing::Values(&MakeWorld<Kinds::kZmqFirst>));
INSTANTIATE_TEST_SUITE_P(TcpFirst, TransportConformance,
                         ::testing::Values(&MakeWorld<Kinds::kTcpFirst>));

// A plain socket that is connected to a node, as a hostile peer would have one.
class RawPeer {
 public:
  explicit RawPeer(const Address& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<uint16_t>(address.port));
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof(where)), 0);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { ::close(fd_); }

  void Send(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Until the other end hangs up.
  void AwaitEnd() const {
    char byte = 0;
    while (::recv(fd_, &byte, 1, 0) == 1) {
    }
  }

 private:
  const int fd_;
};

std::string FrameOf(const std::string& body, bool more) {
  std::string frame;
  AppendFrameHeader(body.size(), more, &frame);
  return frame + body;
}

std::string StockMeta() { return EncodeMeta(Numbered(kEmpty, 5).meta); }

class TcpTransportTest : public ::testing::Test {
 protected:
  // A bound node and where it is.
  std::pair<std::unique_ptr<TransportNode>, Address> BoundNode() {
    auto node = std::make_unique<TransportNode>(&world_);
    Address address = world_.AnyAddress();
    const auto port = node->Bind(address);
    EXPECT_TRUE(port.ok()) << port.status().ToString();
    address.port = port.value();
    return {std::move(node), address};
  }

  TcpWorld world_{Kinds::kTcp};
};

TEST_F(TcpTransportTest, BytesThatComeOneByOneAreAMessageAllTheSame) {
  const auto [node, address] = BoundNode();
  const RawPeer peer(address);
  const std::string all = ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + FrameOf(StockMeta(), true) +
                          FrameOf("keys", true) + FrameOf(std::string(300, 'x'), false);
  for (const char byte : all) peer.Send(std::string(1, byte));
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto got = node->TakeMessages();
  EXPECT_EQ(got[0].peer, 9);
  EXPECT_EQ(got[0].meta.timestamp, 5);
  ASSERT_EQ(got[0].data.size(), 2u);
  EXPECT_EQ(got[0].data[0].text(), "keys");
  EXPECT_EQ(got[0].data[1].text(), std::string(300, 'x'));
}

TEST_F(TcpTransportTest, GarbageIsToldAndDoesNotKill) {
  const auto [node, address] = BoundNode();
  const RawPeer peer(address);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps11") + FrameOf("this is no meta", false));
  peer.Send(FrameOf(std::string(100000, '\xff'), true) + FrameOf("data", false));
  peer.Send(FrameOf(StockMeta(), true));
  for (int i = 0; i < 17; ++i) peer.Send(FrameOf("x", i < 16));
  peer.Send(FrameOf(StockMeta(), false));
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto garbage = node->TakeGarbage();
  ASSERT_EQ(garbage.size(), 3u);
  for (const auto& [sender, what] : garbage) EXPECT_EQ(sender, 11);
  EXPECT_THAT(garbage[2].second.message(), HasSubstr("17 data frames are too many"));
}

TEST_F(TcpTransportTest, WhoSpeaksNoZmtpIsHungUpOn) {
  const auto [node, address] = BoundNode();
  std::string old_version = ZmtpGreeting();
  old_version[10] = 1;
  std::string authenticated = ZmtpGreeting();
  authenticated.replace(12, 5, "CURVE");
  std::string huge(1, '\2');
  huge += std::string(8, '\x7f');
  const std::string hello = ZmtpGreeting() + ZmtpReady("DEALER", "ps9");
  const std::string cut_short = ZmtpGreeting() + std::string("\4\7\5READY\x20", 9);
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), old_version, authenticated, cut_short,
        ZmtpGreeting() + FrameOf("no READY", false), hello + "\xff", hello + huge}) {
    const RawPeer peer(address);
    peer.Send(bytes);
    peer.AwaitEnd();
  }
  const RawPeer peer(address);
  peer.Send(hello + FrameOf(StockMeta(), false));
  ASSERT_TRUE(node->AwaitMessages(1));
}

TEST_F(TcpTransportTest, CommandsOfLaterVersionsAreIgnored) {
  const auto [node, address] = BoundNode();
  const RawPeer peer(address);
  const std::string ping("\4\7\4PING\0\0", 9);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + ping + FrameOf(StockMeta(), true) + ping +
            FrameOf("keys", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].data[0].text(), "keys");
}

TEST_F(TcpTransportTest, PeersAreFoundByName) {
  const auto [node, address] = BoundNode();
  TransportNode sender(&world_);
  sender.Connect(8, {"localhost", address.port}, 9);
  sender.Send(Numbered(8, 1));
  EXPECT_TRUE(node->AwaitMessages(1));
}

TEST_F(TcpTransportTest, ANameThatNobodyHasIsLookedUpAgainUntilTheEnd) {
  TransportNode sender(&world_);
  const ReleaseCount released(&world_);
  sender.Connect(8, {"no-such-host.invalid", 9000}, 9);
  Message message = Numbered(8, 1);
  message.data.push_back(released.Borrow(Pattern(10, 1)));
  sender.Send(std::move(message));
  sender.End();
  EXPECT_TRUE(released.Await(1));
}

TEST_F(TcpTransportTest, ForeignAddressIsRefusedByName) {
  for (const char* const host : {"192.0.2.1", "no-such-host.invalid", "", "bad host"}) {
    TransportNode node(&world_);
    const auto port = node.Bind({host, 0});
    ASSERT_FALSE(port.ok()) << host;
    EXPECT_EQ(port.status().code(), bs::StatusCode::kInvalidArgument) << port.status().ToString();
    EXPECT_THAT(port.status().message(), HasSubstr(host));
  }
}

TEST_F(TcpTransportTest, UnreachableAddressesDropWhatIsSentThere) {
  TransportNode node(&world_);
  const ReleaseCount released(&world_);
  node.Connect(8, {"127.0.0.1", 0}, 9);
  node.Connect(10, {"127.0.0.1", 70000}, 9);
  for (const int32_t peer : {8, 10}) {
    Message message = Numbered(peer, 1);
    message.data.push_back(released.Borrow(Pattern(10, 1)));
    node.Send(std::move(message));
  }
  EXPECT_TRUE(released.Await(2));
}

TEST_F(TcpTransportTest, ReceivedFramesOutliveTheTransport) {
  const auto [node, address] = BoundNode();
  const RawPeer peer(address);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + FrameOf(StockMeta(), true) +
            FrameOf(std::string(1000000, 'a'), true) + FrameOf("short", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto got = node->TakeMessages();
  node->End();
  EXPECT_EQ(got[0].data[0].text(), std::string(1000000, 'a'));
  EXPECT_EQ(got[0].data[1].text(), "short");
}

}  // namespace
}  // namespace ps::testing
