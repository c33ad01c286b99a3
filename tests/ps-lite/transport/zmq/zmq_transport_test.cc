// The ZeroMQ transport: the conformance suites over tcp and ipc, stock peers and hostile ones.
#include "transport/zmq/zmq_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ps-lite/transport/socket_conformance.h"
#include "transport/tcp/zmtp.h"
#include "transport/zmq/zmq_endpoint.h"

namespace ps::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<TransportWorld> MakeWorld(const ZmqOptions& options) {
  return std::make_unique<LoopWorld>([options](bs::LoopThread* loop, size_t /*number*/) {
    return MakeZmqTransport(loop, options, bs::Logger());
  });
}
std::unique_ptr<TransportWorld> MakeTcpWorld() { return MakeWorld({}); }
std::unique_ptr<TransportWorld> MakeIpcWorld() { return MakeWorld({.ipc = true}); }
std::unique_ptr<TransportWorld> MakeCurveWorld() {
  return MakeWorld({.curve = DeriveCurveKeys("a secret of the tests").value()});
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, ::testing::Values(&MakeTcpWorld));
INSTANTIATE_TEST_SUITE_P(Curve, TransportConformance, ::testing::Values(&MakeCurveWorld));
INSTANTIATE_TEST_SUITE_P(Ipc, TransportConformance, ::testing::Values(&MakeIpcWorld));
INSTANTIATE_TEST_SUITE_P(Tcp, SocketConformance, ::testing::Values(&MakeTcpWorld));
INSTANTIATE_TEST_SUITE_P(Curve, SocketConformance, ::testing::Values(&MakeCurveWorld));

// A bare libzmq socket, as a stock or hostile peer would have one.
class RawSocket {
 public:
  explicit RawSocket(int type) : socket_(zmq_socket(context_, type)) {
    Set(ZMQ_LINGER, 10000);
    Set(ZMQ_RCVTIMEO, 30000);
  }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  ~RawSocket() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Set(int option, int value) { zmq_setsockopt(socket_, option, &value, sizeof(value)); }
  void SetIdentity(const std::string& identity) {
    zmq_setsockopt(socket_, ZMQ_ROUTING_ID, identity.data(), identity.size());
  }
  void Connect(const Address& address) {
    const std::string endpoint = "tcp://" + address.host + ":" + std::to_string(address.port);
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  int32_t Bind() {
    EXPECT_EQ(zmq_bind(socket_, "tcp://127.0.0.1:*"), 0);
    std::array<char, 256> endpoint{};
    size_t size = endpoint.size();
    zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, endpoint.data(), &size);
    const std::string text(endpoint.data());
    return std::stoi(text.substr(text.rfind(':') + 1));
  }
  void Send(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const int more = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
      EXPECT_GE(zmq_send(socket_, parts[i].data(), parts[i].size(), more), 0);
    }
  }
  // All parts of one message; empty if none came.
  std::vector<std::string> Receive() {
    std::vector<std::string> parts;
    for (int more = 1; more != 0;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket_, 0) < 0) return {};
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = zmq_msg_more(&part);
      zmq_msg_close(&part);
    }
    return parts;
  }

 private:
  void* const context_ = zmq_ctx_new();
  void* const socket_;
};

class ZmqTransportTest : public ::testing::Test {
 protected:
  const std::unique_ptr<TransportWorld> world_ = MakeTcpWorld();
};

TEST_F(ZmqTransportTest, ReceivesFromAStockDealer) {
  const auto [node, address] = BoundNode(world_.get());
  RawSocket peer(ZMQ_DEALER);
  peer.SetIdentity("ps9");
  peer.Connect(address);
  peer.Send({StockMeta(), "keys", "", "lens"});
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto got = node->TakeMessages();
  EXPECT_EQ(got[0].peer, 9);
  EXPECT_EQ(got[0].meta.timestamp, 5);
  ASSERT_EQ(got[0].data.size(), 3u);
  EXPECT_EQ(got[0].data[0].text(), "keys");
  EXPECT_EQ(got[0].data[1].size(), 0u);
}

TEST_F(ZmqTransportTest, SendsToAStockRouterAsIdentityMetaAndData) {
  RawSocket router(ZMQ_ROUTER);
  const int32_t port = router.Bind();
  TransportNode node(world_.get());
  node.Connect(8, {"localhost", port}, 9);
  Message message = Numbered(8, 5);
  message.data.push_back(Frame::Copy("keys"));
  message.data.push_back(Frame());
  node.Send(std::move(message));
  EXPECT_EQ(router.Receive(), (std::vector<std::string>{"ps9", StockMeta(), "keys", ""}));
}

TEST_F(ZmqTransportTest, GarbageIsToldAndDoesNotKill) {
  const auto [node, address] = BoundNode(world_.get());
  RawSocket peer(ZMQ_DEALER);
  peer.SetIdentity("ps11");
  peer.Connect(address);
  peer.Send({"this is no meta"});
  peer.Send({std::string(100000, '\xff'), "data"});
  std::vector<std::string> too_many(18, "x");
  too_many[0] = StockMeta();
  peer.Send(too_many);
  peer.Send({StockMeta()});
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto garbage = node->TakeGarbage();
  ASSERT_EQ(garbage.size(), 3u);
  for (const auto& [from, what] : garbage) {
    EXPECT_EQ(from, 11);
    EXPECT_EQ(what.code(), bs::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(garbage[2].second.message(), HasSubstr("17 data frames"));
}

TEST_F(ZmqTransportTest, SixteenDataFramesAreAllowed) {
  const auto [node, address] = BoundNode(world_.get());
  RawSocket peer(ZMQ_DEALER);
  peer.Connect(address);
  std::vector<std::string> parts(17, "x");
  parts[0] = StockMeta();
  peer.Send(parts);
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].data.size(), 16u);
}

TEST_F(ZmqTransportTest, StrangeIdentitiesAreAnonymous) {
  const auto [node, address] = BoundNode(world_.get());
  for (const std::string& identity :
       {std::string("ps"), std::string("root"), std::string("ps-5"), std::string(255, 'p')}) {
    RawSocket peer(ZMQ_DEALER);
    peer.SetIdentity(identity);
    peer.Connect(address);
    peer.Send({StockMeta()});
    ASSERT_TRUE(node->AwaitMessages(1));
    EXPECT_EQ(node->TakeMessages()[0].peer, kEmpty) << identity;
  }
}

TEST_F(ZmqTransportTest, BytesThatAreNoZmqDoNotHurt) {
  const auto [node, address] = BoundNode(world_.get());
  RawPeer(address).Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  RawSocket peer(ZMQ_DEALER);
  peer.Connect(address);
  peer.Send({StockMeta()});
  EXPECT_TRUE(node->AwaitMessages(1));
}

TEST_F(ZmqTransportTest, PeerThatSpeaksNoZmqIsNeverConnected) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(own);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&own), size), 0);
  ASSERT_EQ(::listen(fd, 5), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), 0);
  TransportNode node(world_.get());
  node.Connect(8, {"127.0.0.1", ntohs(own.sin_port)}, 9);
  node.Send(Numbered(8, 1));
  const int accepted = ::accept(fd, nullptr, nullptr);
  ::close(accepted);
  // It comes again: the first attempt is over.
  ::close(::accept(fd, nullptr, nullptr));
  ::close(fd);
  EXPECT_EQ(node.connects(8), 0);
  EXPECT_EQ(node.disconnects(8), 0);
}

TEST_F(ZmqTransportTest, UrgentMessageOvertakesBehindASlowReceiver) {
  RawSocket router(ZMQ_ROUTER);
  router.Set(ZMQ_RCVHWM, 1);
  router.Set(ZMQ_RCVBUF, 64 << 10);
  const int32_t port = router.Bind();
  TransportNode node(world_.get());
  node.Connect(8, {"127.0.0.1", port}, 9);
  ASSERT_TRUE(node.AwaitConnects(8, 1));
  const std::string big(1u << 20, 'b');
  for (int32_t i = 0; i < 40; ++i) {
    Message message = Numbered(8, i);
    message.data.push_back(Frame::Copy(big));
    node.Send(std::move(message));
  }
  node.Send(Numbered(8, 100, 1));
  node.Flush();
  int position = 0;
  for (std::vector<std::string> parts = router.Receive(); !parts.empty();
       parts = router.Receive(), ++position) {
    ASSERT_GE(parts.size(), 2u);
    if (ParseMeta(std::as_bytes(std::span(parts[1]))).value().timestamp == 100) break;
  }
  // Two in each libzmq, the one on the way and what the kernel's buffers hold; not forty.
  EXPECT_LE(position, 10);
}

TEST_F(ZmqTransportTest, ReceivedFramesOutliveTheTransport) {
  auto [node, address] = BoundNode(world_.get());
  RawSocket peer(ZMQ_DEALER);
  peer.Connect(address);
  peer.Send({StockMeta(), std::string(1000000, 'a'), "short"});
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto got = node->TakeMessages();
  node->End();
  EXPECT_EQ(got[0].data[0].text(), std::string(1000000, 'a'));
  EXPECT_EQ(got[0].data[1].text(), "short");
}

// Returns the warnings of a transport without known peers while `does` runs.
std::string SaidOf(const std::function<void(const Address&)>& does) {
  const auto make = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeZmqTransport(loop, {.patience = std::chrono::seconds(2)}, log);
  };
  return WarningsOf(make, [&](const Address& address, const bs::Notification& garbage) {
    does(address);
    // Something that is told for certain, and behind it on libzmq's thread.
    RawSocket last(ZMQ_DEALER);
    last.Connect(address);
    last.Send({"no meta"});
    EXPECT_TRUE(garbage.WaitFor(std::chrono::seconds(60)));
  });
}

TEST(Strangers, ThatSendBytesUnknownToLibzmqAreNamedByAddress) {
  const std::string named = "hung up on 127.0.0.1:";
  // A greeting of ZMTP 3 with NULL, and a command that is none.
  const std::string greeting = ZmtpGreeting();
  EXPECT_THAT(SaidOf([&](const Address& address) {
                const RawPeer peer(address);
                peer.Send(greeting + std::string("\x04\x05\x04NONE", 7));
                peer.AwaitEnd();
              }),
              AllOf(AnyOf(HasSubstr(named), HasSubstr("hung up on a peer that closed before its")),
                    HasSubstr("no ZMTP that libzmq speaks")));
  for (const std::string& stalls : {std::string(), std::string("\xff"), greeting}) {
    EXPECT_THAT(SaidOf([&](const Address& address) {
                  const RawPeer peer(address);
                  peer.Send(stalls);
                  peer.AwaitEnd();
                }),
                AllOf(HasSubstr(named), HasSubstr("has not introduced itself in 2 s")));
  }
  EXPECT_THAT(SaidOf([](const Address&) {}),
              AllOf(HasSubstr("dropped bytes from 127.0.0.1:"), Not(HasSubstr("hung up"))));
  // A port may be looked at.
  EXPECT_THAT(SaidOf([](const Address& address) { const RawPeer peer(address); }),
              Not(HasSubstr("hung up")));
  // It would take this for ZMTP 1.0, and wait; it hangs up.
  SaidOf([](const Address& address) {
    const RawPeer peer(address);
    peer.Send("GET / HTTP/1.1\r\n\r\n");
    peer.AwaitEnd();
  });
}

TEST(Strangers, ThatComeAndGoTooOftenAreNamed) {
  EXPECT_THAT(SaidOf(&ComeAndGoTooOften),
              AllOf(HasSubstr("closed by "), HasSubstr("connection 1000 of that host")));
}

class IpcTest : public ::testing::Test {
 protected:
  // A port whose file does not exist.
  int32_t FreePort() {
    TransportNode node(world_.get());
    return node.Bind({"", 0}).value();
  }
  static std::string PathOf(int32_t port) { return "/tmp/" + std::to_string(port); }

  const std::unique_ptr<TransportWorld> world_ = MakeIpcWorld();
};

TEST_F(IpcTest, FileIsRemovedAtTheEnd) {
  struct stat info{};
  EXPECT_NE(::stat(PathOf(FreePort()).c_str(), &info), 0);
}

TEST_F(IpcTest, FileOfADeadProcessIsReplaced) {
  const int32_t port = FreePort();
  const std::string path = PathOf(port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), std::begin(address.sun_path));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
  TransportNode node(world_.get());
  const auto bound = node.Bind({"", port});
  EXPECT_TRUE(bound.ok()) << bound.status().ToString();
}

// The ports of `count` nodes that look for one at the same moment.
std::set<int32_t> PortsFoundTogether(size_t count) {
  const ZmqContext context;
  std::vector<std::unique_ptr<ZmqListener>> listeners(count);
  std::latch start(static_cast<ptrdiff_t>(count));
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (auto& listener : listeners) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      auto opened = ZmqListener::Open(context, {"", 0}, {.ipc = true});
      if (opened.ok()) listener = std::move(opened.value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int32_t> ports;
  for (const auto& listener : listeners) {
    if (listener) ports.insert(listener->port());
  }
  return ports;
}

TEST_F(IpcTest, NodesThatStartTogetherGetPortsOfTheirOwn) {
  constexpr size_t kNodes = 16;
  for (int round = 0; round < 100; ++round) ASSERT_EQ(PortsFoundTogether(kNodes).size(), kNodes);
}

TEST_F(IpcTest, FileThatIsNoSocketIsLeftAlone) {
  const int32_t port = FreePort();
  std::ofstream(PathOf(port)) << "precious";
  TransportNode node(world_.get());
  const auto bound = node.Bind({"", port});
  EXPECT_EQ(bound.status().code(), bs::StatusCode::kAlreadyExists);
  std::string content;
  std::ifstream(PathOf(port)) >> content;
  EXPECT_EQ(content, "precious");
  ::unlink(PathOf(port).c_str());
}

TEST(RemoteEndpoint, NamesHostAndPort) {
  EXPECT_EQ(RemoteEndpoint({"node7", 9000}, false).value(), "tcp://node7:9000");
  EXPECT_EQ(RemoteEndpoint({"node7", 9000}, true).value(), "ipc:///tmp/9000");
  EXPECT_THAT(RemoteEndpoint({"node7", -1}, false).status().message(), HasSubstr("node7"));
}

}  // namespace
}  // namespace ps::test
