// A queue pair with its slots: credits come back, and peers that keep no account are refused.
#include "transport/rdma/rdma_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/snapshot.h"
#include "ps-lite/transport/rdma/links/rdma_pair.h"

namespace ps::test {
namespace {

using ::testing::HasSubstr;

// An end that only counts.
class Counting final : public RdmaEnd {
 public:
  Counting(RdmaNic* nic, uint32_t slots) {
    auto made = RdmaChannel::Create(nic, this, {.slots = slots, .slot_bytes = 1024, .reads = 2},
                                    {.on_packet =
                                         [this](const RdmaPacket&) {
                                           ++packets;
                                           return bs::Status::Ok();
                                         },
                                     .on_read = [](uint32_t) { return bs::Status::Ok(); }});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    channel = std::move(made.value());
  }
  bs::Status OnCompletion(const Completion& completion) override {
    return channel->OnCompletion(completion);
  }
  void OnTurnOver() override {}
  void OnBroken(const bs::Status& why) override {
    if (broken.ok()) broken = why;
  }
  bs::Status SendOne() { return channel->Send({.kind = RdmaHeader::Kind::kControl}, 0, true); }

  int packets = 0;
  bs::Status broken;
  std::unique_ptr<RdmaChannel> channel;
};

class RdmaChannelTest : public ::testing::Test {
 protected:
  RdmaChannelTest() {
    EXPECT_TRUE(a_.channel->Join(b_.channel->offer(), 2, 2).ok());
    EXPECT_TRUE(b_.channel->Join(a_.channel->offer(), 2, 2).ok());
  }
  void Settle() {
    while (pair_.Step()) {
    }
  }

  RdmaPair pair_{{}};
  Counting a_{pair_.sender_nic(), 4};
  Counting b_{pair_.receiver_nic(), 8};
};

TEST_F(RdmaChannelTest, TheLastCreditIsKeptForASendThatGivesSomeBack) {
  int sent = 0;
  for (; a_.channel->CanSend(); ++sent) ASSERT_TRUE(a_.SendOne().ok());
  EXPECT_EQ(sent, 7);
  Settle();
  EXPECT_EQ(b_.packets, 7);
  EXPECT_TRUE(b_.channel->owes_much());
  EXPECT_FALSE(a_.channel->CanSend());
  ASSERT_TRUE(b_.SendOne().ok());
  Settle();
  EXPECT_TRUE(a_.channel->CanSend());
  EXPECT_TRUE(b_.broken.ok()) << b_.broken.ToString();
  EXPECT_EQ(pair_.fabric().Counts().receiver_not_ready, 0U);
}

TEST_F(RdmaChannelTest, NoCreditIsLost) {
  for (int round = 0; round < 100; ++round) {
    int sent = 0;
    for (; a_.channel->CanSend(); ++sent) ASSERT_TRUE(a_.SendOne().ok());
    ASSERT_GE(sent, 7) << "in round " << round;
    Settle();
    ASSERT_TRUE(b_.SendOne().ok());
    Settle();
  }
  EXPECT_TRUE(a_.channel->all_sent());
}

TEST(RdmaRingTest, GivesRoomInOnePieceWhileItLasts) {
  RdmaRing ring(1024, 300);
  for (const size_t offset : {0U, 320U, 640U}) {  // whole lines
    ASSERT_TRUE(ring.has_room());
    EXPECT_EQ(ring.offset(), offset);
    ring.Push(300);
  }
  EXPECT_FALSE(ring.has_room()) << "the last 64 bytes are too few, and the first are in use";
  ring.Pop();
  ASSERT_TRUE(ring.has_room());
  EXPECT_EQ(ring.offset(), 0U);
  ring.Push(10);
  EXPECT_FALSE(ring.has_room()) << "256 bytes are left before the next";
  for (int i = 0; i < 3; ++i) ring.Pop();
  for (int i = 0; i < 100; ++i) ring.Push(0);
  EXPECT_TRUE(ring.has_room()) << "they use none";
}

TEST(RdmaChannelCreateTest, ALinkWithoutRoomForItsCompletionsIsRefused) {
  RdmaPair::Options options;
  options.nic.most_completions = 200;
  RdmaPair pair(options);
  const Counting first(pair.sender_nic(), 100);
  const auto second =
      RdmaChannel::Create(pair.sender_nic(), nullptr, {.slots = 100, .slot_bytes = 1024},
                          {.on_packet = [](const RdmaPacket&) { return bs::Status::Ok(); }});
  EXPECT_EQ(second.status().code(), bs::StatusCode::kResourceExhausted);
  EXPECT_SNAPSHOT(
      second.status().message(),
      "sim0 has no completions for one more link: set BYTESCHEDULER_RDMA_SLOTS to fewer");
  EXPECT_EQ(pair.sender_nic()->counts()->links, 1U);
}

TEST_F(RdmaChannelTest, EndsOnInfiniBandAndOnEthernetDoNotJoin) {
  const Counting other(pair_.sender_nic(), 4);
  RdmaOffer offer = b_.channel->offer();
  offer.address.layer = RdmaLayer::kInfiniBand;
  EXPECT_SNAPSHOT(
      other.channel->Join(offer, 2, 2).message(),
      "one end is on InfiniBand, the other on Ethernet: name devices of one network with "
      "BYTESCHEDULER_RDMA_DEVICE");
}

TEST_F(RdmaChannelTest, AnEndThatCannotJoinSendsNothing) {
  const Counting other(pair_.sender_nic(), 4);
  const uint32_t more_reads_than_the_card_has = NicOptions{}.most_reads + 1;
  EXPECT_FALSE(other.channel->Join(b_.channel->offer(), more_reads_than_the_card_has, 2).ok());
  EXPECT_FALSE(other.channel->joined());
  EXPECT_FALSE(other.channel->CanSend());
}

TEST_F(RdmaChannelTest, AnErrorNamesItsNumbers) {
  pair_.verbs(0)->FailNext(Completion::Result::kRetriesExceeded);
  ASSERT_TRUE(a_.SendOne().ok());
  Settle();
  EXPECT_THAT(a_.broken.message(),
              HasSubstr("transport retry counter exceeded (status 12, vendor"));
}

}  // namespace
}  // namespace ps::test
