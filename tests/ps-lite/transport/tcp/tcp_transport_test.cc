// The TCP transport: the conformance suites, alone and against libzmq in both directions, and peers
// that are hostile.
#include "transport/tcp/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ps-lite/transport/socket_conformance.h"
#include "transport/tcp/tcp_inbound.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"
#include "transport/zmq/zmq_transport.h"
#include "wire/fusion.h"
#include "wire/wire.h"

namespace ps::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Kinds { kTcp, kZmqFirst, kTcpFirst };

// Nodes of the TCP transport, or of it and of libzmq's in turns.
template <Kinds kinds>
std::unique_ptr<TransportWorld> MakeWorld() {
  return std::make_unique<LoopWorld>(
      [](bs::LoopThread* loop, size_t number) -> std::unique_ptr<Transport> {
        const bool odd = number % 2 == 1;
        const bool zmq = kinds != Kinds::kTcp && odd == (kinds == Kinds::kZmqFirst);
        if (zmq) return MakeZmqTransport(loop, {}, bs::Logger());
        return MakeTcpTransport(loop, {}, bs::Logger());
      });
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, ::testing::Values(&MakeWorld<Kinds::kTcp>));
INSTANTIATE_TEST_SUITE_P(ZmqFirst, TransportConformance,
                         ::testing::Values(&MakeWorld<Kinds::kZmqFirst>));
INSTANTIATE_TEST_SUITE_P(TcpFirst, TransportConformance,
                         ::testing::Values(&MakeWorld<Kinds::kTcpFirst>));
INSTANTIATE_TEST_SUITE_P(Tcp, SocketConformance, ::testing::Values(&MakeWorld<Kinds::kTcp>));

class TcpTransportTest : public ::testing::Test {
 protected:
  const std::unique_ptr<TransportWorld> world_ = MakeWorld<Kinds::kTcp>();
};

TEST(Introduction, ANodeOfOursIsRecognisedOverEitherTransport) {
  for (const auto& make : {MakeWorld<Kinds::kTcp>, MakeWorld<Kinds::kZmqFirst>}) {
    const std::unique_ptr<TransportWorld> world = make();
    const auto [node, address] = BoundNode(world.get());
    TransportNode sender(world.get());  // over TCP
    sender.Connect(8, address, 9);
    ASSERT_TRUE(sender.AwaitConnects(8, 1));
    EXPECT_FALSE(sender.is_foreign(8));
  }
}

TEST_F(TcpTransportTest, BytesThatComeOneByOneAreAMessageAllTheSame) {
  const auto [node, address] = BoundNode(world_.get());
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
  const auto [node, address] = BoundNode(world_.get());
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

TEST_F(TcpTransportTest, APeerThatSpeaksNoZmtpIsHungUpOn) {
  const auto [node, address] = BoundNode(world_.get());
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

TEST_F(TcpTransportTest, APeerOutsideTheJobMaySendLittle) {
  TransportNode node(world_.get(), [](int32_t peer) { return peer == 9; });
  const Address address{"127.0.0.1", node.Bind({"127.0.0.1", 0}).value()};
  const std::string message = FrameOf(StockMeta(), true) + FrameOf(std::string(100000, 'x'), false);
  const RawPeer stranger(address);
  stranger.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps11") + message +
                FrameOf(StockMeta(), true) + FrameOf("little", false));
  ASSERT_TRUE(node.AwaitMessages(1));
  EXPECT_EQ(node.TakeMessages()[0].data[0].text(), "little");
  const auto garbage = node.TakeGarbage();
  ASSERT_EQ(garbage.size(), 1U);
  EXPECT_EQ(garbage[0].first, 11);
  EXPECT_THAT(garbage[0].second.message(), HasSubstr("100000 bytes of data"));
  const RawPeer member(address);
  member.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + message);
  ASSERT_TRUE(node.AwaitMessages(1));
  const RawPeer long_meta(address);
  long_meta.Send(ZmtpGreeting() + ZmtpReady("DEALER", "") +
                 FrameOf(std::string(100000, 'x'), true));
  long_meta.AwaitEnd();
}

TEST_F(TcpTransportTest, FloodsStallsAndHalfClosedConnectionsHoldNoPeerUp) {
  TransportNode node(world_.get(), [](int32_t peer) { return peer != kEmpty; });
  const Address address{"127.0.0.1", node.Bind({"127.0.0.1", 0}).value()};
  const auto hello = [](const std::string& who) {
    return ZmtpGreeting() + ZmtpReady("DEALER", who);
  };
  const RawPeer half(address);
  half.Send(hello("ps9") + FrameOf(StockMeta(), true));
  half.CloseSending();
  half.AwaitEnd();
  // The rest of this message never comes.
  const RawPeer stalls(address);
  std::string header;
  AppendFrameHeader(1000000, false, &header);
  stalls.Send(hello("ps11") + FrameOf(StockMeta(), true) + header + "and so on");
  bs::Notification over;
  bs::Notification done;
  std::thread flood([&, to = address] {
    const RawPeer floods(to);
    floods.Send(hello("ps13"));
    const std::string much = FrameOf(std::string(10000, '\xff'), false);
    for (int i = 0; i < 20000 && !(over.HasBeenNotified() && i > 0); ++i) floods.Send(much);
    EXPECT_TRUE(over.WaitFor(std::chrono::seconds(60)));
    floods.Send(FrameOf(StockMeta(), false));
    EXPECT_TRUE(done.WaitFor(std::chrono::seconds(60)));
  });
  for (int i = 0; i < 20; ++i) {
    const RawPeer good(address);
    good.Send(hello("ps15") + FrameOf(StockMeta(), false));
    EXPECT_TRUE(node.AwaitMessages(1));
    EXPECT_EQ(node.TakeMessages()[0].peer, 15);
  }
  over.Notify();
  // It was not hung up on, and whatever it said before was no message.
  EXPECT_TRUE(node.AwaitMessages(1));
  EXPECT_EQ(node.TakeMessages()[0].peer, 13);
  done.Notify();
  flood.join();
  const auto garbage = node.TakeGarbage();
  EXPECT_FALSE(garbage.empty());
  for (const auto& [sender, what] : garbage) EXPECT_EQ(sender, 13);
}

TEST(Inbound, EndsAreToldWithWhetherAMessageIsLost) {
  bs::LoopThread loop("bs-io");
  const auto transport = MakeTcpTransport(&loop, {}, bs::Logger());
  std::vector<std::string> told;  // on the loop
  bs::Notification over;
  const auto tell = [&](const std::string& what, int32_t peer) {
    told.push_back(what + std::to_string(peer));
    if (told.back() == "end 15") over.Notify();
  };
  transport->Start(
      {.on_message = {},
       .on_garbage = {},
       .on_connected = {},
       .on_disconnected = {},
       .on_inbound = [&](int32_t peer) { tell("open ", peer); },
       .on_inbound_ended = [&](int32_t peer, bool torn) { tell(torn ? "torn " : "end ", peer); }});
  Address address{"127.0.0.1", 0};
  bs::Notification bound;
  transport->Bind(address, [&](const bs::Result<int32_t>& port) {
    address.port = port.value();
    bound.Notify();
  });
  bound.Wait();
  const std::string message = FrameOf(StockMeta(), false);
  const auto come_and_go = [&](const std::string& identity, const std::string& what) {
    const RawPeer peer(address);
    peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", identity) + what);
    peer.CloseSending();
    peer.AwaitEnd();
  };
  come_and_go("", message.substr(0, 5));  // of an unknown sender
  come_and_go("ps9", message);
  come_and_go("ps9", message + message.substr(0, 1));
  come_and_go("ps9", message + FrameOf(StockMeta(), true));
  const RawPeer stays(address);
  stays.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps11") + message.substr(0, 5));
  EXPECT_TRUE(stays.AwaitGreeting());
  come_and_go("ps11", "");  // the same node again: the earlier one counts no more
  stays.AwaitEnd();
  const RawPeer idle(address);
  idle.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps13"));
  EXPECT_TRUE(idle.AwaitGreeting());
  come_and_go("ps13", "");
  idle.AwaitEnd();
  come_and_go("ps15", "");
  over.Wait();
  EXPECT_THAT(told, ElementsAre("open 9", "end 9", "open 9", "torn 9", "open 9", "torn 9",  //
                                "open 11", "torn 11", "open 11", "end 11",                  //
                                "open 13", "end 13", "open 13", "end 13", "open 15", "end 15"));
  transport->Close(bs::Duration(0));
}

// Returns how many messages a node takes in one turn of its loop while a peer sends many, `carried`
// of them in each frame.
int MostInATurn(bool zmq, const std::string& frame, int carried) {
  bs::LoopThread loop("bs-io");
  const auto transport =
      zmq ? MakeZmqTransport(&loop, {}, bs::Logger()) : MakeTcpTransport(&loop, {}, bs::Logger());
  constexpr int kMessages = 32000;
  // On the loop.
  int in_turn = 0;
  int most_in_turn = 0;
  int messages = 0;
  bs::Notification came;
  transport->Start({.on_message =
                        [&](const Message&) {
                          most_in_turn = std::max(most_in_turn, ++in_turn);
                          if (++messages == kMessages) came.Notify();
                        },
                    .on_garbage = {},
                    .on_connected = {},
                    .on_disconnected = {}});
  Address address{"127.0.0.1", 0};
  bs::Notification bound;
  transport->Bind(address, [&](const bs::Result<int32_t>& port) {
    address.port = port.value();
    bound.Notify();
  });
  bound.Wait();
  // Another socket that always has bytes to read.
  const RawPeer other(address);
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  bs::Notification watched;
  loop.Post([&] {
    loop.WatchReadable(ends[0], [&] { in_turn = 0; });
    watched.Notify();
  });
  watched.Wait();
  std::string flood;
  for (int i = 0; i < kMessages / carried; ++i) flood += frame;
  const RawPeer floods(address);
  floods.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9"));
  EXPECT_TRUE(floods.AwaitGreeting());
  floods.Send(flood);
  EXPECT_TRUE(came.WaitFor(std::chrono::seconds(60)));
  bs::Notification unwatched;
  loop.Post([&] {
    loop.Unwatch(ends[0]);
    unwatched.Notify();
  });
  unwatched.Wait();
  ::close(ends[0]);
  ::close(ends[1]);
  transport->Close(bs::Duration::zero());
  return most_in_turn;
}

TEST(Flood, OfTinyMessagesHasSoManyInATurnOfTheLoop) {
  std::vector<Message> some;
  for (int32_t i = 0; i < static_cast<int32_t>(kMostFused); ++i) some.push_back(Native(8, i));
  const std::string fused = FrameOf(EncodeMeta(FusedMeta(some)), false);
  for (const bool zmq : {false, true}) {
    EXPECT_LE(MostInATurn(zmq, std::string(2, '\0'), 1), 2 * ZmtpInput::kFramesPerTurn) << zmq;
    EXPECT_LE(MostInATurn(zmq, fused, kMostFused), 2 * ZmtpInput::kFramesPerTurn) << zmq;
  }
}

TEST_F(TcpTransportTest, AFloodOfTheOtherEndOfALinkIsReadInTurns) {
  // A correct listener sends only its greeting; this one goes on for ever.
  auto listening = ListenTcp({"127.0.0.1", 0});
  const TcpSocket listener = std::move(listening.value());
  const auto [node, address] = BoundNode(world_.get());
  node->Connect(8, {"127.0.0.1", LocalAddress(listener).port()}, 9);
  pollfd readable{.fd = listener.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&readable, 1, 60000), 1);
  const TcpSocket connection(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  std::atomic<bool> over = false;
  std::thread flood([&] {
    std::string bytes = ZmtpGreeting() + ZmtpReady("ROUTER", "");
    while (!over && ::send(connection.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      bytes.assign(60000, '\0');
    }
  });
  EXPECT_TRUE(node->AwaitConnects(8, 1));
  const RawPeer good(address);
  good.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps15") + FrameOf(StockMeta(), false));
  EXPECT_TRUE(node->AwaitMessages(1));
  over = true;
  ::shutdown(connection.fd(), SHUT_RDWR);
  flood.join();
}

TEST_F(TcpTransportTest, CommandsOfLaterVersionsAreIgnored) {
  const auto [node, address] = BoundNode(world_.get());
  const RawPeer peer(address);
  const std::string ping("\4\7\4PING\0\0", 9);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + ping + FrameOf(StockMeta(), true) + ping +
            FrameOf("keys", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].data[0].text(), "keys");
}

TEST_F(TcpTransportTest, ReceivedFramesOutliveTheTransport) {
  const auto [node, address] = BoundNode(world_.get());
  const RawPeer peer(address);
  peer.Send(ZmtpGreeting() + ZmtpReady("DEALER", "ps9") + FrameOf(StockMeta(), true) +
            FrameOf(std::string(1000000, 'a'), true) + FrameOf("short", false));
  ASSERT_TRUE(node->AwaitMessages(1));
  const auto got = node->TakeMessages();
  node->End();
  EXPECT_EQ(got[0].data[0].text(), std::string(1000000, 'a'));
  EXPECT_EQ(got[0].data[1].text(), "short");
}

TEST(HostTimeout, ShorterThanTheKernelProbesBreaksNoIdleLink) {
  LoopWorld world([](bs::LoopThread* loop, size_t) {
    return MakeTcpTransport(loop, {.host_timeout = std::chrono::milliseconds(100)}, bs::Logger());
  });
  const auto [node, address] = BoundNode(&world);
  TransportNode sender(&world);
  sender.Connect(8, address, 9);
  ASSERT_TRUE(sender.AwaitConnects(8, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(sender.disconnects(8), 0);
}

// Sends so much to a peer that never reads that it is given up, and says why.
std::string WhyGivenUp(bool native, bool keeps_memory = false) {
  std::string why;  // on the loop
  const std::string value(1U << 20U, 'x');
  bs::LoopThread loop("bs-io");
  const auto transport = MakeTcpTransport(&loop, {.most_waiting_bytes = 10U << 20U},
                                          bs::Logger("", bs::LogLevel::kOff));
  bs::Notification connected;
  bs::Notification full;
  transport->Start({.on_message = {},
                    .on_garbage = {},
                    .on_connected = [&](int32_t) { connected.Notify(); },
                    .on_disconnected = {},
                    .on_overflow =
                        [&](int32_t peer, const std::string& told) {
                          EXPECT_EQ(peer, 9);
                          why = told;
                          full.Notify();
                        }});
  auto listening = ListenTcp({"127.0.0.1", 0});
  const TcpSocket listener = std::move(listening.value());
  transport->Connect(9, {"127.0.0.1", LocalAddress(listener).port()}, 8);
  pollfd readable{.fd = listener.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&readable, 1, 60000), 1);
  const TcpSocket connection(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string hello = ZmtpGreeting() + ZmtpReady("ROUTER", "");
  EXPECT_GT(::send(connection.fd(), hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(connected.WaitFor(std::chrono::seconds(60)));
  for (int i = 0; i < 30; ++i) {
    Message message;
    message.peer = 9;
    message.meta.extension.version = native ? kExtensionVersion : 0;
    message.data.push_back(Frame::Borrow(std::as_bytes(std::span(value)), {}));
    message.keeps_memory = keeps_memory;
    transport->Send(std::move(message));
  }
  bs::Notification sent;
  loop.Post([&] { sent.Notify(); });
  sent.Wait();
  EXPECT_TRUE((native && !keeps_memory) || full.WaitFor(std::chrono::seconds(60)));
  transport->Close(bs::Duration::zero());
  return why;
}

TEST(Overflow, APeerThatReadsNothingIsForgottenWhenTooMuchWaitsForIt) {
  EXPECT_THAT(WhyGivenUp(false),
              AllOf(HasSubstr("it does not read"),
                    HasSubstr("bytes wait for it, and BYTESCHEDULER_WAITING lets 10485760 do so")));
  // Frames of ours show sums that are there anyway, or say that they are not.
  EXPECT_EQ(WhyGivenUp(true), "");
  EXPECT_THAT(WhyGivenUp(true, true), HasSubstr("it does not read"));
}

// Returns the warnings of a transport without known peers when a peer sends `bytes`, and perhaps
// closes its half.  Waits until the transport has hung up or has read the bytes.
std::string SaidOfStranger(const std::string& bytes, bool closes, bool hung_up_on,
                           bs::Duration patience = std::chrono::seconds(60)) {
  const auto make = [=](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeTcpTransport(loop, {.patience = patience}, log);
  };
  return WarningsOf(make, [&](const Address& address, const bs::Notification& garbage) {
    const RawPeer peer(address);
    peer.Send(bytes);
    if (closes) peer.CloseSending();
    hung_up_on ? peer.AwaitEnd() : static_cast<void>(garbage.WaitFor(std::chrono::seconds(60)));
  });
}

TEST(Strangers, ThatSendGarbageStallOrCloseInTheMiddleAreNamedByAddress) {
  const std::string hello = ZmtpGreeting() + ZmtpReady("DEALER", "ps11");
  const std::string half = hello + FrameOf(StockMeta(), true);
  const std::string named = "hung up on 127.0.0.1:";
  EXPECT_THAT(SaidOfStranger("GET / HTTP/1.1\r\n\r\n", false, true),
              AllOf(HasSubstr(named), HasSubstr("another greeting")));
  EXPECT_THAT(SaidOfStranger("\xff and so on", true, true),
              AllOf(HasSubstr(named), HasSubstr("no ZMTP, and the other end has closed it")));
  for (const std::string& stalls : {std::string(), std::string("\xff"), ZmtpGreeting()}) {
    EXPECT_THAT(SaidOfStranger(stalls, false, true, std::chrono::milliseconds(50)),
                AllOf(HasSubstr(named), HasSubstr("has not introduced itself in 50 ms")));
  }
  EXPECT_THAT(SaidOfStranger(half, true, true),
              AllOf(HasSubstr(named), HasSubstr("closed it in the middle of a message")));
  // Time enough to introduce itself.
  EXPECT_THAT(SaidOfStranger(half, false, true, std::chrono::seconds(1)),
              AllOf(HasSubstr(named), HasSubstr("has not ended its message in 1 s")));
  EXPECT_THAT(SaidOfStranger(hello + FrameOf("no meta", false), false, false),
              HasSubstr("dropped bytes from 127.0.0.1:"));
  // A port may be looked at, and a node may go.
  EXPECT_EQ(SaidOfStranger("", true, true), "");
  EXPECT_EQ(SaidOfStranger(hello + FrameOf(StockMeta(), false), true, true), "");
}

TEST(Strangers, ThatSendTooManyMessagesAreHungUpOnAndNamed) {
  std::string flood = ZmtpGreeting() + ZmtpReady("DEALER", "ps11");
  for (uint64_t i = 0; i < TcpInbound::kMostMessages; ++i) flood += FrameOf(StockMeta(), false);
  const auto make = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeTcpTransport(loop, {}, log);
  };
  const auto said_of = [&](const std::string& bytes, bool closes) {
    return WarningsOf(make, [&](const Address& address, const bs::Notification&) {
      const RawPeer peer(address);
      peer.Send(bytes);
      if (closes) peer.CloseSending();
      peer.AwaitEnd();
    });
  };
  EXPECT_EQ(said_of(flood, true), "");
  EXPECT_THAT(
      said_of(flood + FrameOf(StockMeta(), false), false),
      AllOf(HasSubstr("hung up on 127.0.0.1:"),
            HasSubstr("it is not in the job, and has sent more than 4096 messages in 30 s")));
}

TEST(Strangers, ThatComeAndGoTooOftenAreNamed) {
  const auto make = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeTcpTransport(loop, {}, log);
  };
  EXPECT_THAT(
      WarningsOf(make,
                 [](const Address& address, const bs::Notification& garbage) {
                   ComeAndGoTooOften(address);
                   const RawPeer last(address);
                   last.Send(ZmtpGreeting() + ZmtpReady("DEALER", "") + FrameOf("no meta", false));
                   EXPECT_TRUE(garbage.WaitFor(std::chrono::seconds(60)));
                 }),
      AllOf(HasSubstr("closed by 127.0.0.1:"), HasSubstr("connection 1000 of that host")));
}

TEST(Strangers, OfOneHostLoseTheirOldestConnectionFirst) {
  LoopWorld world([](bs::LoopThread* loop, size_t) {
    return MakeTcpTransport(loop, {.most_strangers = 3}, bs::Logger());
  });
  TransportNode node(&world, [](int32_t peer) { return peer == 9; });
  const Address address{"127.0.0.1", node.Bind({"127.0.0.1", 0}).value()};
  const auto introduce = [&](const std::string& who) {
    auto peer = std::make_unique<RawPeer>(address);
    peer->Send(ZmtpGreeting() + ZmtpReady("DEALER", who) + FrameOf(StockMeta(), false));
    EXPECT_TRUE(node.AwaitMessages(1));
    node.TakeMessages();
    return peer;
  };
  const auto member = introduce("ps9");
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 8; ++i) strangers.push_back(introduce(""));
  for (size_t i = 0; i < 5; ++i) strangers[i]->AwaitEnd();
  for (size_t i = 5; i < 8; ++i) {
    strangers[i]->Send(FrameOf(StockMeta(), false));
    EXPECT_TRUE(node.AwaitMessages(1));
    node.TakeMessages();
  }
  member->Send(FrameOf(StockMeta(), false));
  EXPECT_TRUE(node.AwaitMessages(1));
  EXPECT_EQ(node.TakeMessages()[0].peer, 9);
}

TEST(Strangers, OfAHostWithTooManyConnectionsAreNamed) {
  const auto make = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeTcpTransport(loop, {.most_strangers = 1}, log);
  };
  EXPECT_THAT(
      WarningsOf(make,
                 [](const Address& address, const bs::Notification&) {
                   const RawPeer first(address);
                   const RawPeer second(address);
                   first.AwaitEnd();
                 }),
      AllOf(HasSubstr("hung up on 127.0.0.1:"),
            HasSubstr("it is not in the job, and its host has 1 such connections already")));
}

int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(Strangers, AFewAreLetInInATurnOfTheLoop) {
  constexpr int kMany = 200;
  constexpr int kFew = 32;
  bs::LoopThread loop("bs-io");
  const auto transport = MakeTcpTransport(&loop, {}, bs::Logger());
  transport->Start({.on_message = {}, .on_garbage = {}, .on_connected = {}, .on_disconnected = {}});
  Address address{"127.0.0.1", 0};
  bs::Notification bound;
  transport->Bind(address, [&](const bs::Result<int32_t>& port) {
    address.port = port.value();
    bound.Notify();
  });
  bound.Wait();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  // All are there when the loop goes on.
  bs::Notification stands;
  bs::Notification go_on;
  loop.Post([&] {
    stands.Notify();
    go_on.Wait();
  });
  stands.Wait();
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < kMany; ++i) peers.push_back(std::make_unique<RawPeer>(address));
  bs::Notification all_in;
  // On the loop.
  const int64_t before = OpenDescriptors();
  int64_t last = before;
  int64_t most = 0;
  loop.Post([&] {
    loop.WatchReadable(ends[0], [&] {
      const int64_t now = OpenDescriptors();
      most = std::max(most, now - std::exchange(last, now));
      if (now == before + kMany) all_in.Notify();
    });
  });
  go_on.Notify();
  EXPECT_TRUE(all_in.WaitFor(std::chrono::seconds(60)));
  bs::Notification unwatched;
  loop.Post([&] {
    EXPECT_LE(most, kFew);
    loop.Unwatch(ends[0]);
    unwatched.Notify();
  });
  unwatched.Wait();
  ::close(ends[0]);
  ::close(ends[1]);
  transport->Close(bs::Duration::zero());
}

// Returns the log of a transport that binds `host`.
template <typename Make>
std::vector<std::string> SaidWhenBound(const std::string& host, Make make) {
  std::vector<std::string> said;  // on the loop, until Bind has ended
  bs::LoopThread loop("bs-io");
  const bs::Logger log("", bs::LogLevel::kWarning,
                       [&](bs::LogLevel, std::string_view line) { said.emplace_back(line); });
  const std::unique_ptr<Transport> transport = make(&loop, log);
  bs::Notification bound;
  transport->Start({.on_message = {}, .on_garbage = {}, .on_connected = {}, .on_disconnected = {}});
  transport->Bind({host, 0}, [&](const bs::Result<int32_t>& port) {
    EXPECT_TRUE(port.ok()) << port.status().ToString();
    bound.Notify();
  });
  EXPECT_TRUE(bound.WaitFor(std::chrono::seconds(60)));
  transport->Close(bs::Duration::zero());
  return said;
}

TEST(Exposed, ANodeThatListensInTheOpenIsWarned) {
  const auto tcp = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeTcpTransport(loop, {}, log);
  };
  const auto zmq = [](bs::LoopThread* loop, const bs::Logger& log) {
    return MakeZmqTransport(loop, {}, log);
  };
  const auto curve = [](bs::LoopThread* loop, const bs::Logger& log) {
    const CurveKeys keys = DeriveCurveKeys("a secret of the tests").value();
    return MakeZmqTransport(loop, {.curve = keys}, log);
  };
  const auto warning = ::testing::ElementsAre(
      ::testing::ContainsRegex("listening on 0.0.0.0:[0-9]+ without BYTESCHEDULER_SECRET_FILE"));
  EXPECT_THAT(SaidWhenBound("0.0.0.0", tcp), warning);
  EXPECT_THAT(SaidWhenBound("0.0.0.0", zmq), warning);
  EXPECT_THAT(SaidWhenBound("0.0.0.0", curve), ::testing::IsEmpty());
  EXPECT_THAT(SaidWhenBound("127.0.0.1", tcp), ::testing::IsEmpty());
  EXPECT_THAT(SaidWhenBound("127.0.0.1", zmq), ::testing::IsEmpty());
}

}  // namespace
}  // namespace ps::test
