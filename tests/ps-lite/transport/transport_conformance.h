// The one suite that every Transport must pass; each kind of transport brings a TransportWorld.
//
// To run it: derive a world, include this file in one test program and
//   INSTANTIATE_TEST_SUITE_P(Ipc, TransportConformance, testing::Values(&MakeIpcWorld));
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/transport_node.h"

namespace ps::test {

class TransportConformance
    : public ::testing::TestWithParam<std::unique_ptr<TransportWorld> (*)()> {
 protected:
  std::unique_ptr<TransportNode> NewNode() { return std::make_unique<TransportNode>(world()); }
  // A node that receives at a free port of its own.
  std::unique_ptr<TransportNode> NewBoundNode(Address* address) {
    auto [node, where] = BoundNode(world());
    *address = where;
    return std::move(node);
  }
  Address FreeAddress() { return world()->FreeAddress(); }
  TransportWorld* world() { return world_.get(); }

 private:
  const std::unique_ptr<TransportWorld> world_ = GetParam()();
};

// Bytes that repeat in no short distance.
inline std::vector<std::byte> Pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t state = seed * 2 + 1;
  std::array<uint64_t, 512> block;
  for (size_t at = 0; at < size; at += sizeof(block)) {
    for (uint64_t& word : block) word = state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&bytes[at], block.data(), std::min(sizeof(block), size - at));
  }
  return bytes;
}

inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

TEST_P(TransportConformance, MessageArrivesWithItsSenderMetaAndFrames) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  Message message = Numbered(8, 77, -3);
  message.meta.body = "a body";
  message.meta.request = true;
  message.meta.extension = {
      .version = 1, .op = Op::kPush, .text = "native", .body = Body("\xb8\x06\x07")};
  message.data.push_back(Frame::Copy("first"));
  message.data.push_back(Frame::Copy("second"));
  const Meta sent = message.meta;
  sender->Send(std::move(message));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  const std::vector<Message> got = receiver->TakeMessages();
  EXPECT_EQ(got[0].peer, 9);
  EXPECT_EQ(got[0].meta, sent);
  ASSERT_EQ(got[0].data.size(), 2u);
  EXPECT_EQ(got[0].data[0].text(), "first");
  EXPECT_EQ(got[0].data[1].text(), "second");
}

TEST_P(TransportConformance, EqualPrioritiesArriveInTheOrderOfSend) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  for (int32_t i = 0; i < 1000; ++i) sender->Send(Numbered(8, i));
  ASSERT_TRUE(receiver->AwaitMessages(1000));
  EXPECT_EQ(NumbersOf(receiver->TakeMessages()), Count(0, 1000));
}

TEST_P(TransportConformance, UrgentMessageOvertakesMessagesThatWait) {
  const Address address = FreeAddress();
  const std::vector<std::byte> big = Pattern(1u << 20, 1);  // outlives the sender
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  for (int32_t i = 0; i < 20; ++i) {
    Message message = Numbered(8, i);
    message.data.push_back(Frame::Borrow(big, {}));
    sender->Send(std::move(message));
  }
  sender->Send(Numbered(8, 100, 1));
  sender->Send(Numbered(8, 101, 2));
  sender->Send(Numbered(8, 102, 1));
  sender->Flush();  // they wait, however late the sender's loop is
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(23));
  std::vector<int32_t> numbers = NumbersOf(receiver->TakeMessages());
  const auto most_urgent = std::find(numbers.begin(), numbers.end(), 101);
  // Little is committed ahead of it.
  EXPECT_LE(most_urgent - numbers.begin(), 4);
  std::erase_if(numbers, [](int32_t number) { return number >= 100; });
  EXPECT_EQ(numbers, Count(0, 20));
}

TEST_P(TransportConformance, WaitingMessagesLeaveByPriorityThenInOrder) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  // Enough that what may be committed early does not matter behind them.
  for (int32_t i = 0; i < 8; ++i) sender->Send(Numbered(8, i, 1000));
  const std::vector<int32_t> priorities = {
      0, 5, -7, 5, 0, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), -7};
  int32_t number = 100;
  for (const int32_t priority : priorities) sender->Send(Numbered(8, number++, priority));
  sender->Flush();
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(16));
  std::vector<int32_t> numbers = NumbersOf(receiver->TakeMessages());
  std::erase_if(numbers, [](int32_t n) { return n < 100; });
  EXPECT_EQ(numbers, (std::vector<int32_t>{105, 101, 103, 100, 104, 102, 107, 106}));
}

// Some transports fuse these.
TEST_P(TransportConformance, WaitingSmallNativeMessagesArriveWholeAndInOrderOfEachPriority) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  constexpr size_t kMessages = 200;
  const ReleaseCount released(world());
  std::vector<std::vector<std::byte>> payloads;
  payloads.reserve(kMessages);
  int with_payload = 0;
  for (size_t i = 0; i < kMessages; ++i) {
    Message message = Numbered(8, static_cast<int32_t>(i), static_cast<int32_t>(i % 2));
    message.meta.extension.version = kExtensionVersion;
    message.meta.extension.op = Op::kPushPull;
    message.meta.extension.sequence = i;
    payloads.push_back(Pattern(i % 7 * 700, i));
    if (!payloads.back().empty()) {
      message.data.push_back(released.Borrow(payloads.back()));
      ++with_payload;
    }
    sender->Send(std::move(message));
  }
  sender->Flush();
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(kMessages));
  std::array<uint64_t, 2> next = {0, 1};
  for (const Message& message : receiver->TakeMessages()) {
    const uint64_t number = message.meta.extension.sequence;
    EXPECT_EQ(message.peer, 9);
    EXPECT_EQ(message.meta.extension.op, Op::kPushPull);
    EXPECT_EQ(message.meta.timestamp, static_cast<int32_t>(number));
    EXPECT_EQ(std::exchange(next.at(number % 2), number + 2), number);
    const std::vector<std::byte>& payload = payloads.at(number);
    ASSERT_EQ(message.data.size(), payload.empty() ? 0U : 1U);
    if (!payload.empty()) {
      EXPECT_TRUE(SameBytes(message.data[0].bytes(), payload));
    }
  }
  EXPECT_TRUE(released.Await(with_payload));
}

TEST_P(TransportConformance, BigFramesArriveIntactAndAreReleasedOnceAfterwards) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  const std::vector<std::byte> first = Pattern(64u << 20, 1);
  const std::vector<std::byte> second = Pattern((16u << 20) + 3, 2);
  const ReleaseCount released(world());
  Message message = Numbered(8, 1);
  message.data.push_back(released.Borrow(first));
  message.data.push_back(released.Borrow(second));
  sender->Send(std::move(message));
  sender->Flush();
  EXPECT_EQ(released.count(), 0) << "the bytes cannot have left: nobody receives";
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(1));
  {
    const std::vector<Message> got = receiver->TakeMessages();
    ASSERT_EQ(got[0].data.size(), 2u);
    EXPECT_TRUE(SameBytes(got[0].data[0].bytes(), first));
    EXPECT_TRUE(SameBytes(got[0].data[1].bytes(), second));
  }
  EXPECT_TRUE(released.Await(2));
  sender->End();
  EXPECT_EQ(released.count(), 2);
}

TEST_P(TransportConformance, EmptyFramesStayFrames) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  const ReleaseCount released(world());
  Message message = Numbered(8, 1);
  message.data.push_back(Frame());
  message.data.push_back(Frame::Copy("abc"));
  message.data.push_back(released.Borrow({}));
  sender->Send(std::move(message));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  {
    const std::vector<Message> got = receiver->TakeMessages();
    ASSERT_EQ(got[0].data.size(), 3u);
    EXPECT_EQ(got[0].data[0].size(), 0u);
    EXPECT_EQ(got[0].data[1].text(), "abc");
    EXPECT_EQ(got[0].data[2].size(), 0u);
  }
  EXPECT_TRUE(released.Await(1));
}

TEST_P(TransportConformance, AnonymousSenderHasNoId) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(kSchedulerId, address, kEmpty);
  sender->Send(Numbered(kSchedulerId, 1));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  EXPECT_EQ(receiver->TakeMessages()[0].peer, kEmpty);
}

TEST_P(TransportConformance, NodeMayConnectToItself) {
  Address address;
  const auto node = NewBoundNode(&address);
  node->Connect(9, address, 9);
  node->Send(Numbered(9, 5));
  ASSERT_TRUE(node->AwaitMessages(1));
  EXPECT_EQ(node->TakeMessages()[0].peer, 9);
}

TEST_P(TransportConformance, ManySendersEachKeepTheirOrder) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  std::vector<std::unique_ptr<TransportNode>> senders;
  for (int32_t rank = 0; rank < 4; ++rank) {
    senders.push_back(NewNode());
    senders.back()->Connect(8, address, WorkerId(rank));
  }
  for (int32_t i = 0; i < 100; ++i) {
    for (const auto& sender : senders) sender->Send(Numbered(8, i));
  }
  ASSERT_TRUE(receiver->AwaitMessages(400));
  const std::vector<Message> got = receiver->TakeMessages();
  for (int32_t rank = 0; rank < 4; ++rank) {
    std::vector<int32_t> numbers;
    for (const Message& message : got) {
      if (message.peer == WorkerId(rank)) numbers.push_back(message.meta.timestamp);
    }
    EXPECT_EQ(numbers, Count(0, 100)) << "worker " << rank;
  }
}

TEST_P(TransportConformance, MessageToAnUnknownPeerIsDroppedAndReleased) {
  const auto sender = NewNode();
  const ReleaseCount released(world());
  Message message = Numbered(11, 1);
  message.data.push_back(released.Borrow(Pattern(10, 1)));
  sender->Send(std::move(message));
  EXPECT_TRUE(released.Await(1));
}

TEST_P(TransportConformance, DisconnectReleasesMessagesThatCannotLeave) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  const ReleaseCount released(world());
  for (int32_t i = 0; i < 10; ++i) {
    Message message = Numbered(8, i);
    message.data.push_back(released.Borrow(Pattern(1000, 1)));
    sender->Send(std::move(message));
  }
  sender->Disconnect(8, std::chrono::milliseconds(1));
  EXPECT_TRUE(released.Await(10));
  sender->End();
  EXPECT_EQ(released.count(), 10);
}

TEST_P(TransportConformance, DisconnectLetsWaitingMessagesLeaveEvenBeforeThePeerIsThere) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  for (int32_t i = 0; i < 10; ++i) sender->Send(Numbered(8, i));
  sender->Disconnect(8, std::chrono::seconds(30));
  sender->Send(Numbered(8, 99));  // the peer is forgotten by now
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(10));
  sender->End();
  EXPECT_EQ(NumbersOf(receiver->TakeMessages()), Count(0, 10));
}

TEST_P(TransportConformance, CloseLetsWaitingMessagesLeave) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  const std::vector<std::byte> bytes = Pattern(100000, 3);
  const ReleaseCount released(world());
  for (int32_t i = 0; i < 50; ++i) {
    Message message = Numbered(8, i);
    message.data.push_back(released.Borrow(bytes));
    sender->Send(std::move(message));
  }
  sender->End(std::chrono::seconds(30));
  ASSERT_TRUE(receiver->AwaitMessages(50));
  EXPECT_EQ(NumbersOf(receiver->TakeMessages()), Count(0, 50));
  EXPECT_TRUE(released.Await(50));
}

TEST_P(TransportConformance, CloseReleasesMessagesThatCannotLeave) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  const ReleaseCount released(world());
  for (int32_t i = 0; i < 10; ++i) {
    Message message = Numbered(8, i);
    message.data.push_back(released.Borrow(Pattern(1000, 1)));
    sender->Send(std::move(message));
  }
  sender->End(std::chrono::milliseconds(1));
  EXPECT_TRUE(released.Await(10));
  EXPECT_EQ(released.count(), 10);
}

TEST_P(TransportConformance, ConnectReplacesTheEarlierConnection) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const Address nowhere = FreeAddress();
  const auto sender = NewNode();
  const ReleaseCount released(world());
  sender->Connect(8, nowhere, kEmpty);
  Message message = Numbered(8, 1);
  message.data.push_back(released.Borrow(Pattern(10, 1)));
  sender->Send(std::move(message));
  sender->Connect(8, address, 9);
  sender->Send(Numbered(8, 2));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  EXPECT_TRUE(released.Await(1));
  const std::vector<Message> got = receiver->TakeMessages();
  EXPECT_EQ(NumbersOf(got), (std::vector<int32_t>{2}));
  EXPECT_EQ(got[0].peer, 9);
}

TEST_P(TransportConformance, TellsWhenThePeerThatComesLaterIsThere) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  sender->Flush();
  EXPECT_EQ(sender->connects(8), 0);
  const auto receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  EXPECT_TRUE(sender->AwaitConnects(8, 1));
  EXPECT_EQ(sender->disconnects(8), 0);
}

TEST_P(TransportConformance, TellsOnceThatThePeerIsGoneAndFindsItAgain) {
  Address address;
  auto receiver = NewBoundNode(&address);
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  sender->Send(Numbered(8, 1));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  ASSERT_TRUE(sender->AwaitConnects(8, 1));
  receiver->End();
  ASSERT_TRUE(sender->AwaitDisconnects(8, 1));
  receiver = NewNode();
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(sender->AwaitConnects(8, 2));
  EXPECT_EQ(sender->disconnects(8), 1);
  sender->Send(Numbered(8, 2));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  EXPECT_EQ(NumbersOf(receiver->TakeMessages()), (std::vector<int32_t>{2}));
}

TEST_P(TransportConformance, RestartedSenderIsHeardUnderItsOldId) {
  Address address;
  const auto receiver = NewBoundNode(&address);
  const auto first = NewNode();
  first->Connect(8, address, 9);
  first->Send(Numbered(8, 1));
  ASSERT_TRUE(receiver->AwaitMessages(1));
  // The old connection is still there: a host that died keeps its connections for minutes.
  const auto second = NewNode();
  second->Connect(8, address, 9);
  second->Send(Numbered(8, 2));
  ASSERT_TRUE(receiver->AwaitMessages(2));
  const std::vector<Message> got = receiver->TakeMessages();
  EXPECT_EQ(NumbersOf(got), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(got[1].peer, 9);
}

TEST_P(TransportConformance, NothingIsCalledBackAfterClose) {
  const Address address = FreeAddress();
  const auto sender = NewNode();
  sender->Connect(8, address, 9);
  for (int32_t i = 0; i < 500; ++i) sender->Send(Numbered(8, i));
  const auto receiver = NewNode();
  receiver->CloseAtMessage(3);  // inside the callback; the node fails the test on any later one
  ASSERT_TRUE(receiver->Bind(address).ok());
  ASSERT_TRUE(receiver->AwaitMessages(3));
  receiver->Flush();
  EXPECT_EQ(NumbersOf(receiver->TakeMessages()), Count(0, 3));
  receiver->Close(bs::Duration::zero());  // a second time does no harm
  receiver->Send(Numbered(8, 1));
  receiver->Connect(8, address, 9);
  receiver->Disconnect(8, bs::Duration::zero());
  receiver->Flush();
}

TEST_P(TransportConformance, PortInUseIsRefusedByName) {
  Address address;
  const auto first = NewBoundNode(&address);
  const auto second = NewNode();
  const auto port = second->Bind(address);
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.status().code(), bs::StatusCode::kAlreadyExists);
  EXPECT_NE(port.status().message().find(std::to_string(address.port)), std::string::npos)
      << port.status().message();
}

TEST_P(TransportConformance, ImpossiblePortIsRefused) {
  Address address = world()->AnyAddress();
  address.port = 70000;
  const auto port = NewNode()->Bind(address);
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.status().code(), bs::StatusCode::kInvalidArgument);
}

TEST_P(TransportConformance, PortZeroTakesAFreeOneEachTime) {
  Address first_address;
  Address second_address;
  const auto first = NewBoundNode(&first_address);
  const auto second = NewBoundNode(&second_address);
  EXPECT_GT(first_address.port, 0);
  EXPECT_GT(second_address.port, 0);
  EXPECT_NE(first_address.port, second_address.port);
}

}  // namespace ps::test
