// ReconnectTimer and ReliableBroadcast: their timers when no response comes.
#include "membership/reconnect_timer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "membership/coordinator/reliable_broadcast.h"
#include "sim/sim_executor.h"
#include "wire/control.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReconnectTimerTest : public ::testing::Test {
 protected:
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  std::vector<std::string> lost_;
  ReconnectTimer timer_{&scope_, seconds(60), seconds(1),
                        [this](int32_t peer, const std::string& why) {
                          lost_.push_back(std::to_string(peer) + ": " + why);
                        }};
};

TEST_F(ReconnectTimerTest, PeerThatNeverConnectsIsLost) {
  timer_.Watch(9);
  Run(seconds(100));
  EXPECT_EQ(lost_, std::vector<std::string>{"9: no connection in 60 s"});
}

TEST_F(ReconnectTimerTest, ConnectionThatComesBackInTimeIsNotLost) {
  timer_.Watch(9);
  timer_.OnConnected(9);
  timer_.OnDisconnected(9);
  Run(milliseconds(900));
  timer_.OnDisconnected(9);  // told twice: the grace does not begin again
  timer_.OnConnected(9);
  Run(seconds(10));
  EXPECT_TRUE(lost_.empty());
  timer_.OnDisconnected(9);
  Run(seconds(10));
  EXPECT_EQ(lost_, std::vector<std::string>{"9: connection closed"});
}

TEST_F(ReconnectTimerTest, ForgottenAndUnknownPeersDoNotMatter) {
  timer_.Watch(9);
  timer_.OnConnected(9);
  timer_.OnDisconnected(9);
  timer_.Forget(9);
  timer_.OnDisconnected(11);
  Run(seconds(100));
  EXPECT_TRUE(lost_.empty());
}

class ReliableBroadcastTest : public ::testing::Test {
 protected:
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  void Announce(const std::vector<int32_t>& receivers) {
    broadcast_.Send(receivers, NativeControl(Command::kNone, Op::kLeave, 0), [this] { ++done_; });
  }
  struct Sent {
    int32_t receiver;
    uint64_t sequence;
  };
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  std::vector<Sent> sent_;
  int done_ = 0;
  ReliableBroadcast broadcast_{&scope_, seconds(1), [this](int32_t receiver, const Meta& meta) {
                                 sent_.push_back({receiver, meta.extension.sequence});
                               }};
};

TEST_F(ReliableBroadcastTest, RepeatsToReceiversThatHaveNotConfirmedAndEndsWithTheLast) {
  Announce({8, 10});
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_NE(sent_.at(0).sequence, sent_.at(1).sequence);
  broadcast_.Confirm(8, sent_.at(0).sequence);
  broadcast_.Confirm(8, sent_.at(1).sequence);  // not its own
  Run(milliseconds(1500));
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_.at(2).receiver, 10);
  EXPECT_EQ(sent_.at(2).sequence, sent_.at(1).sequence);
  EXPECT_EQ(done_, 0);
  broadcast_.Confirm(10, sent_.at(1).sequence);
  broadcast_.Confirm(10, sent_.at(1).sequence);
  Run(seconds(10));
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(sent_.size(), 3U);
}

TEST_F(ReliableBroadcastTest, ForgottenReceiversAreNotWaitedFor) {
  Announce({8, 10});
  broadcast_.Forget(8);
  broadcast_.Forget(10);
  Run(seconds(1));
  EXPECT_EQ(done_, 1);
}

TEST_F(ReliableBroadcastTest, ToNoReceiverIsDoneAtOnceButNotInside) {
  Announce({});
  EXPECT_EQ(done_, 0);
  Run(bs::Duration(0));
  EXPECT_EQ(done_, 1);
}

TEST_F(ReliableBroadcastTest, RestartDropsEverything) {
  Announce({8});
  broadcast_.Restart(milliseconds(100));
  Run(seconds(5));
  EXPECT_EQ(done_, 0);
  EXPECT_EQ(sent_.size(), 1U);
  Announce({8});
  Run(milliseconds(350));
  EXPECT_EQ(sent_.size(), 5U);
}

}  // namespace
}  // namespace ps
