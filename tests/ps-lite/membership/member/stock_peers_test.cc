// StockPeers: repeats, silence and the ends of workers that are MXNet's own.
#include "membership/member/stock_peers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ps-lite/membership/member/member_parts.h"

namespace ps {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class StockPeersTest : public test::MemberParts {
 protected:
  StockPeersTest() { neighbours_.Apply(NodeOf(kWorker0), NeighbourEvent::kListed); }

  static Message MessageOf(int32_t worker, int32_t timestamp) {
    Message message;
    message.peer = worker;
    message.meta.request = true;
    message.meta.push = true;
    message.meta.app_id = 0;
    message.meta.customer_id = 0;
    message.meta.timestamp = timestamp;
    return message;
  }
  void LoseWorker() {
    neighbours_.Apply(NodeOf(kWorker0), NeighbourEvent::kLost, {.why = "connection closed"});
  }
  // How many times the worker was ordered to end its process.
  int64_t Ends() const {
    return std::ranges::count_if(transport_.sent, [](const Message& message) {
      return message.peer == kWorker0 && !message.meta.is_control && message.meta.pull;
    });
  }

  Neighbours neighbours_{[](NeighbourCondition condition, const Neighbour&) {
                           return condition == NeighbourCondition::kAlways;
                         },
                         [](NeighbourAction, Neighbour* neighbour,
                            const NeighbourDetails& details) { neighbour->why = details.why; }};
  std::vector<std::string> unheard_;
  StockPeers peers_{&context_, &neighbours_, [this](int32_t id, const std::string& why) {
                      unheard_.push_back(std::to_string(id) + ": " + why);
                    }};
};

TEST_F(StockPeersTest, RepeatIsAcknowledgedAndNotTaken) {
  EXPECT_TRUE(peers_.Take(MessageOf(kWorker0, 1)));
  EXPECT_TRUE(transport_.sent.empty());
  EXPECT_FALSE(peers_.Take(MessageOf(kWorker0, 1)));
  ASSERT_EQ(transport_.sent.size(), 1U);
  EXPECT_EQ(transport_.sent.front().peer, kWorker0);
  EXPECT_EQ(transport_.sent.front().meta.control.command, Command::kAck);
  peers_.ForgetMessages(kWorker0);
  EXPECT_TRUE(peers_.Take(MessageOf(kWorker0, 1))) << "another process has the id";
}

TEST_F(StockPeersTest, WorkerThatOpensNoOtherConnectionIsUnheard) {
  peers_.Take(MessageOf(kWorker0, 1));
  peers_.OnInbound(kWorker0);
  peers_.OnInboundEnded(kWorker0, false);
  Run(seconds(2));
  EXPECT_EQ(unheard_, std::vector<std::string>{"9: connection closed, and no other opened in 1 s"});
}

TEST_F(StockPeersTest, EndOfAConnectionMattersForHeardNodesOfTheJobAlone) {
  peers_.OnInbound(kWorker0);
  peers_.OnInboundEnded(kWorker0, false);  // not heard
  peers_.Take(MessageOf(kWorker1, 1));
  peers_.OnInbound(kWorker1);
  peers_.OnInboundEnded(kWorker1, false);  // not in the job
  peers_.Take(MessageOf(kSchedulerId, 1));
  peers_.OnInbound(kSchedulerId);
  peers_.OnInboundEnded(kSchedulerId, false);  // our own scheduler node
  Run(minutes(60));
  EXPECT_TRUE(unheard_.empty());
  context_.stock_scheduler = true;
  peers_.OnInbound(kSchedulerId);
  peers_.OnInboundEnded(kSchedulerId, false);
  Run(seconds(2));
  EXPECT_EQ(unheard_.size(), 1U);
}

TEST_F(StockPeersTest, TornMessageOfAWorkerThatSendsAgainIsNoLoss) {
  peers_.Take(MessageOf(kWorker0, 1));
  peers_.Take(MessageOf(kWorker0, 1));
  peers_.OnInbound(kWorker0);
  peers_.OnInboundEnded(kWorker0, true);
  peers_.OnInbound(kWorker0);
  Run(seconds(2));
  EXPECT_TRUE(unheard_.empty());
  peers_.ForgetMessages(kWorker0);
  peers_.Take(MessageOf(kWorker0, 2));
  peers_.OnInboundEnded(kWorker0, true);
  peers_.OnInbound(kWorker0);
  Run(seconds(2));
  EXPECT_EQ(unheard_.size(), 1U) << "it sends once";
}

TEST_F(StockPeersTest, SuspectedWorkerIsUnheardUnlessItSendsAgain) {
  peers_.Take(MessageOf(kWorker0, 1));
  peers_.Suspect(kWorker0);
  Run(minutes(29));
  peers_.Take(MessageOf(kWorker0, 2));
  Run(minutes(29));
  EXPECT_TRUE(unheard_.empty());
  Run(minutes(2));
  EXPECT_EQ(unheard_.size(), 1U);
}

TEST_F(StockPeersTest, WorkerIsSuspectedOnlyByAServerBeforeTheFinalBarrier) {
  peers_.Take(MessageOf(kWorker0, 1));
  context_.joined_final = true;
  peers_.Suspect(kWorker0);
  context_.joined_final = false;
  context_.own.role = Role::kWorker;
  peers_.Suspect(kWorker0);
  context_.own.role = Role::kServer;
  context_.state = MemberState::kStarting;
  peers_.Suspect(kWorker0);
  Run(minutes(60));
  EXPECT_TRUE(unheard_.empty());
}

TEST_F(StockPeersTest, ForgottenSilenceIsNoLoss) {
  peers_.Take(MessageOf(kWorker0, 1));
  peers_.OnInbound(kWorker0);
  peers_.OnInboundEnded(kWorker0, false);
  peers_.ForgetSilence(kWorker0);
  peers_.Suspect(kWorker0);
  peers_.EndSuspicion(kWorker0);
  Run(minutes(60));
  EXPECT_TRUE(unheard_.empty());
}

TEST_F(StockPeersTest, LostWorkerThatAsksForMoreIsToldToEndAgainAndAgain) {
  LoseWorker();
  peers_.TurnAway(MessageOf(kWorker0, 2));
  EXPECT_TRUE(Logged("worker 0 (10.0.0.9:4711) was lost (connection closed) and asks for more"));
  EXPECT_EQ(Ends(), 1);
  EXPECT_EQ(transport_.sent.front().meta.body,
            "bytescheduler: lost worker 0 (10.0.0.9:4711): connection closed");
  EXPECT_FALSE(transport_.connected.contains(kWorker0));
  peers_.TurnAway(MessageOf(kWorker0, 3));
  EXPECT_EQ(Ends(), 1) << "the next is in two seconds";
  Run(seconds(3));
  EXPECT_EQ(Ends(), 2);
  Run(minutes(10));
  EXPECT_EQ(Ends(), 30);
}

TEST_F(StockPeersTest, LostWorkerIsToldNoMoreOnceAnotherHasItsPlace) {
  LoseWorker();
  peers_.TurnAway(MessageOf(kWorker0, 2));
  neighbours_.Apply(NodeOf(kWorker0), NeighbourEvent::kComes);
  Run(minutes(1));
  EXPECT_EQ(Ends(), 1);
}

TEST_F(StockPeersTest, DataOfOtherNodesIsDropped) {
  LoseWorker();
  Message native = MessageOf(kWorker0, 2);
  native.meta.extension.version = kExtensionVersion;
  peers_.TurnAway(native);
  peers_.TurnAway(MessageOf(kWorker1, 2));
  EXPECT_TRUE(Logged("data of a node that is not in the job"));
  context_.own.role = Role::kWorker;
  peers_.TurnAway(MessageOf(kWorker0, 2));
  EXPECT_TRUE(transport_.sent.empty());
}

}  // namespace
}  // namespace ps
