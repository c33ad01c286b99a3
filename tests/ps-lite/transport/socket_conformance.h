// Tests of every transport over sockets, beyond transport_conformance.h: nodes on loops, and plain
// peers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_networks.h"
#include "base/log.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "ps-lite/transport/loop_world.h"
#include "ps-lite/transport/raw_peer.h"
#include "ps-lite/transport/transport_conformance.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"
#include "wire/wire.h"

namespace ps::test {

// Returns the warnings of a transport without known peers while `does` runs with its address.
// `garbage` is notified when on_garbage was called.  Blocks, on the test's thread.
inline std::string WarningsOf(
    const std::function<std::unique_ptr<Transport>(bs::LoopThread* loop, const bs::Logger& log)>&
        make,
    const std::function<void(const Address& address, const bs::Notification& garbage)>& does) {
  std::string said;  // on the loop
  bs::LoopThread loop("bs-io");
  const bs::Logger log("", bs::LogLevel::kWarning,
                       [&](bs::LogLevel, std::string_view line) { said += line; });
  const std::unique_ptr<Transport> transport = make(&loop, log);
  bs::Notification garbage;
  transport->Start({.on_message = {},
                    .on_garbage = [&](int32_t, const bs::Status&) { garbage.Notify(); },
                    .on_connected = {},
                    .on_disconnected = {},
                    .knows = [](int32_t) { return false; }});
  bs::Notification bound;
  Address address{"127.0.0.1", 0};
  transport->Bind(address, [&](const bs::Result<int32_t>& port) {
    address.port = port.value();
    bound.Notify();
  });
  EXPECT_TRUE(bound.WaitFor(std::chrono::seconds(60)));
  does(address, garbage);
  // One turn of the loop reads all bytes that are there, in any order.
  for (int turn = 0; turn < 3; ++turn) {
    bs::Notification over;
    loop.Post([&] { over.Notify(); });
    over.Wait();
  }
  transport->Close(bs::Duration::zero());
  return said;
}

// The meta of Numbered(kEmpty, 5), as a stock node writes it.
inline std::string StockMeta() { return EncodeMeta(Numbered(kEmpty, 5).meta); }

// INSTANTIATE_TEST_SUITE_P(Tcp, SocketConformance, testing::Values(&MakeTcpWorld));
class SocketConformance : public TransportConformance {};

TEST_P(SocketConformance, LocalhostIsAnAddressToBind) {
  const auto node = NewNode();
  const auto port = node->Bind({"localhost", 0});
  ASSERT_TRUE(port.ok()) << port.status().ToString();
  EXPECT_GT(port.value(), 0);
}

TEST_P(SocketConformance, PeersAreFoundByName) {
  const auto [node, address] = BoundNode(world());
  const auto sender = NewNode();
  sender->Connect(8, {"localhost", address.port}, 9);
  sender->Send(Numbered(8, 1));
  EXPECT_TRUE(node->AwaitMessages(1));
}

TEST_P(SocketConformance, PeersAreFoundAtIpv6Addresses) {
  if (!bs::HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  const auto node = NewNode();
  const auto port = node->Bind({"::1", 0});
  ASSERT_TRUE(port.ok()) << port.status().ToString();
  const auto sender = NewNode();
  sender->Connect(8, {"::1", port.value()}, 9);
  sender->Send(Numbered(8, 1));
  EXPECT_TRUE(node->AwaitMessages(1));
}

TEST_P(SocketConformance, TheIpv6AddressOfAllTakesPeersOfBothKinds) {
  if (!bs::HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  const auto node = NewNode();
  const auto port = node->Bind({"::", 0});
  ASSERT_TRUE(port.ok()) << port.status().ToString();
  const auto sender = NewNode();
  sender->Connect(8, {"::1", port.value()}, 9);
  sender->Send(Numbered(8, 1));
  EXPECT_TRUE(node->AwaitMessages(1));
  sender->Connect(10, {"127.0.0.1", port.value()}, 11);
  sender->Send(Numbered(10, 2));
  EXPECT_TRUE(node->AwaitMessages(2));
}

TEST_P(SocketConformance, AnUnknownNameIsLookedUpAgainUntilTheEnd) {
  const auto sender = NewNode();
  const ReleaseCount released(world());
  sender->Connect(8, {"no-such-host.invalid", 9000}, 9);
  Message message = Numbered(8, 1);
  message.data.push_back(released.Borrow(Pattern(10, 1)));
  sender->Send(std::move(message));
  sender->End();
  EXPECT_TRUE(released.Await(1));
}

TEST_P(SocketConformance, ForeignAddressIsRefusedByName) {
  for (const char* const host : {"192.0.2.1", "no-such-host.invalid", "", "bad host"}) {
    const auto node = NewNode();
    const auto port = node->Bind({host, 0});
    ASSERT_FALSE(port.ok()) << host;
    EXPECT_EQ(port.status().code(), bs::StatusCode::kInvalidArgument) << port.status().ToString();
    EXPECT_THAT(port.status().message(), ::testing::HasSubstr(host));
  }
}

TEST_P(SocketConformance, UnreachableAddressesDropTheirMessages) {
  const auto node = NewNode();
  const ReleaseCount released(world());
  node->Connect(8, {"127.0.0.1", 0}, 9);
  node->Connect(10, {"127.0.0.1", 70000}, 9);
  for (const int32_t peer : {8, 10}) {
    Message message = Numbered(peer, 1);
    message.data.push_back(released.Borrow(Pattern(10, 1)));
    node->Send(std::move(message));
  }
  EXPECT_TRUE(released.Await(2));
}

TEST_P(SocketConformance, TwoTransportsShareALoop) {
  auto* const loop = world()->NewExecutor();
  const auto first = world()->NewTransport(loop);
  const auto second = world()->NewTransport(loop);
  bs::Notification came;
  first->Start({.on_message = [&](const Message&) { came.Notify(); },
                .on_garbage = {},
                .on_connected = {},
                .on_disconnected = {}});
  second->Start({.on_message = {}, .on_garbage = {}, .on_connected = {}, .on_disconnected = {}});
  first->Bind({"127.0.0.1", 0}, [&](const bs::Result<int32_t>& port) {
    second->Connect(8, {"127.0.0.1", port.value()}, 9);
    second->Send(Numbered(8, 1));
  });
  EXPECT_TRUE(world()->WaitFor(came));
  first->Close(bs::Duration::zero());
  second->Close(bs::Duration::zero());
}

TEST_P(SocketConformance, PeersThatComeAndGoAgainAndAgainHoldNoPeerUp) {
  const auto [node, address] = BoundNode(world());
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  ASSERT_TRUE(sender->AwaitConnects(8, 1));
  const Attack attack(2, [&to = address](const auto&) { ComeAndGo(to); });
  for (int32_t i = 0; i < 20; ++i) {
    sender->Send(Numbered(8, i));
    ASSERT_TRUE(node->AwaitMessages(1));
    EXPECT_EQ(node->TakeMessages()[0].meta.timestamp, i);
  }
}

TEST_P(SocketConformance, AFloodOfAStrangersMessagesHoldsNoPeerUp) {
  TransportNode node(world(), [](int32_t peer) { return peer == 9; });
  Address address = world()->AnyAddress();
  address.port = node.Bind(address).value();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  std::string much;
  for (int i = 0; i < 1000; ++i) much += FrameOf(StockMeta(), false);
  const std::string hello = ZmtpGreeting() + ZmtpReady("DEALER", "ps11");
  const Attack attack(1, [&](const std::atomic<bool>& over) { Flood(address, hello, much, over); });
  for (int32_t i = 0; i < 20; ++i) {
    sender->Send(Numbered(8, i));
    for (bool came = false; !came;) {
      ASSERT_TRUE(node.AwaitMessages(1));
      for (const Message& message : node.TakeMessages()) came = came || message.peer == 9;
    }
  }
}

}  // namespace ps::test
