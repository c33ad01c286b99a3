// Shutdown: goodbyes, losses that end the job, and the notification of all nodes.
#include "membership/coordinator/shutdown.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "membership/goodbye.h"
#include "ps-lite/membership/coordinator/parts.h"
#include "wire/control.h"

namespace ps {
namespace {

using std::chrono::seconds;

class ShutdownTest : public test::Parts {
 protected:
  ShutdownTest() { RunJob(); }

  void Leave(int32_t id) { job_.peers.Apply(id, PeerEvent::kGoodbye, {.sequence = 7}); }
};

TEST_F(ShutdownTest, AWorkersGoodbyeIsConfirmedOnceEveryServerKnowsIt) {
  Leave(kWorker0);
  EXPECT_EQ(StateOf(kWorker0), PeerState::kLeaving);
  EXPECT_EQ(transport_.Count(kServer, Op::kLeave), 1);
  EXPECT_EQ(transport_.Count(kWorker0, Op::kLeave), 0);
  Confirm(kServer);
  EXPECT_EQ(StateOf(kWorker0), PeerState::kLeft);
  EXPECT_EQ(transport_.Count(kWorker0, Op::kLeave), 1);
  EXPECT_EQ(job_.phase, Phase::kRunning) << "a worker is still there";
}

TEST_F(ShutdownTest, AGoodbyeBehindTheWorkersOwnMayStillFailTheJob) {
  Leave(kWorker1);
  Confirm(kServer);
  bs::Result<Goodbye> late = Goodbye::From("11 5 0", "exit code 3");
  late.value().message.peer = kWorker1;
  Inbox(&job_, &detector_, &places_, &shutdown_, &stores_).OnMessage(late.value().message);
  EXPECT_EQ(job_.verdict.ToString(),
            "kUnavailable: worker 1 gave up: exit code 3 (reported by worker 1)");
}

TEST_F(ShutdownTest, ARepeatedGoodbyeIsConfirmedAgainOnlyWhenTheServersKnow) {
  Leave(kWorker0);
  Leave(kWorker0);
  EXPECT_EQ(transport_.Count(kWorker0, Op::kLeave), 0);
  Confirm(kServer);
  Leave(kWorker0);
  EXPECT_EQ(transport_.Count(kWorker0, Op::kLeave), 2);
}

TEST_F(ShutdownTest, TheJobEndsWellWhenAllWorkersLeft) {
  Leave(kWorker0);
  Leave(kWorker1);
  Confirm(kServer);
  EXPECT_EQ(job_.phase, Phase::kEnding);
  EXPECT_TRUE(job_.verdict.ok());
  EXPECT_EQ(transport_.Count(kServer, Op::kShutdown), 1);
  Confirm(kServer);
  Leave(kServer);
  EXPECT_EQ(StateOf(kServer), PeerState::kLeft);
  for (const int32_t id : {kServer, kWorker0, kWorker1}) {
    job_.peers.Apply(id, PeerEvent::kDisconnected);
  }
  Run(bs::Duration(0));
  EXPECT_EQ(finished_, 1);
}

TEST_F(ShutdownTest, TheEndDoesNotWaitForConnectionsForEver) {
  Leave(kWorker0);
  Leave(kWorker1);
  Confirm(kServer);
  Confirm(kServer);
  Leave(kServer);
  Run(bs::Duration(0));
  EXPECT_EQ(finished_, 0);
  Run(kFarewell);
  EXPECT_EQ(finished_, 1);
}

TEST_F(ShutdownTest, ALossEndsTheJobAndEveryNodeIsNotifiedOfTheName) {
  places_.Lose(kWorker1, "connection closed");
  EXPECT_EQ(StateOf(kWorker1), PeerState::kLost);
  EXPECT_EQ(job_.verdict.message().find("lost worker 1 (10.0.0.9:4712): connection closed"), 0U)
      << job_.verdict.ToString();
  EXPECT_EQ(transport_.Count(kWorker0, Op::kShutdown), 1);
  EXPECT_EQ(transport_.Count(kWorker1, Op::kShutdown), 0);
  Confirm(kWorker0);
  Confirm(kServer);
  EXPECT_EQ(finished_, 1);
}

TEST_F(ShutdownTest, ASecondLossDoesNotChangeTheVerdict) {
  places_.Lose(kWorker1, "connection closed");
  places_.Lose(kServer, "connection closed");
  EXPECT_NE(job_.verdict.message().find("lost worker 1"), std::string::npos);
  EXPECT_EQ(StateOf(kServer), PeerState::kLost);
}

TEST_F(ShutdownTest, ANodeThatDoesNotConfirmDelaysTheEndOnlySoLong) {
  places_.Lose(kWorker1, "connection closed");
  Run(kFarewell - std::chrono::milliseconds(1));
  EXPECT_EQ(finished_, 0);
  Run(std::chrono::milliseconds(1));
  EXPECT_EQ(finished_, 1);
}

TEST_F(ShutdownTest, ANodeThatWasNeverHeardIsAnsweredByItsRegistrationToo) {
  job_.peers.Apply(AttachedId(0), PeerEvent::kComes,
                   {.newcomer = {NodeAt(Role::kWorker, 4730), 3}});
  EXPECT_EQ(StateOf(AttachedId(0)), PeerState::kJoining);
  shutdown_.End(bs::Status::Unavailable("over"));
  EXPECT_EQ(transport_.Count(AttachedId(0), Op::kStatus), 1);
  EXPECT_EQ(transport_.Count(kWorker0, Op::kStatus), 0);
}

}  // namespace
}  // namespace ps
