// Rendezvous: registrations before the job, and the moment in which it begins.
#include "membership/coordinator/rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "membership/goodbye.h"
#include "ps-lite/membership/coordinator/parts.h"

namespace ps {
namespace {

using std::chrono::seconds;

class RendezvousTest : public test::Parts {};

TEST_F(RendezvousTest, TheJobBeginsOnceAllNodesHaveRegistered) {
  Register(Role::kServer, 4710);
  Register(Role::kWorker, 4711);
  EXPECT_EQ(begun_, 0);
  EXPECT_EQ(StateOf(kWorker0), PeerState::kFree);
  Register(Role::kWorker, 4712);
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(job_.phase, Phase::kRunning);
  for (const int32_t id : {kServer, kWorker0, kWorker1}) {
    EXPECT_EQ(StateOf(id), PeerState::kListed);
    EXPECT_EQ(transport_.Count(id, Op::kRegister), 1) << "the list";
  }
}

TEST_F(RendezvousTest, ARepeatOfARegistrationTakesNoSecondPlace) {
  Register(Role::kWorker, 4711);
  Register(Role::kWorker, 4711, Command::kAck);
  Register(Role::kServer, 4710);
  EXPECT_EQ(job_.roster.Waiting(), "waiting for 1 of 2 workers");
}

TEST_F(RendezvousTest, ReportsNameTheMissingNodesToTheNodesThatWait) {
  Register(Role::kWorker, 4711);
  Run(options_.report_interval);
  EXPECT_TRUE(Logged("waiting for 1 of 2 workers, 1 of 1 server"));
  EXPECT_GE(transport_.Count(transport_.PeerOf(4711), Op::kStatus), 1);
}

TEST_F(RendezvousTest, ANodeThatIsGoneLeavesItsPlaceToTheNext) {
  Register(Role::kWorker, 4711);
  Run(seconds(1));
  const int32_t peer = transport_.PeerOf(4711);
  rendezvous_.waiting()->OnConnected(peer);
  rendezvous_.waiting()->OnDisconnected(peer);
  Run(seconds(2));
  EXPECT_TRUE(Logged("worker 10.0.0.9:4711 is gone before all nodes were there"));
  EXPECT_EQ(job_.roster.entries().size(), 0U);
  EXPECT_FALSE(transport_.connected.contains(peer));
}

TEST_F(RendezvousTest, OtherSettingsAreRefused) {
  rendezvous_.OnMessage(Registration(Role::kWorker, 4711, "num_workers=3\n"));
  EXPECT_TRUE(Logged("settings differ: worker 10.0.0.9:4711 has num_workers=3"));
  EXPECT_EQ(transport_.Count(transport_.PeerOf(4711), Op::kStatus), 1);
  EXPECT_EQ(job_.roster.entries().size(), 0U);
}

TEST_F(RendezvousTest, TheTimeoutEndsTheJobAndNamesTheMissing) {
  Register(Role::kWorker, 4711);
  Run(seconds(1));
  rendezvous_.waiting()->OnConnected(transport_.PeerOf(4711));
  Run(options_.timeout - seconds(1));
  EXPECT_EQ(job_.phase, Phase::kEnding);
  EXPECT_NE(job_.verdict.message().find("missing 1 of 2 workers, 1 of 1 server"), std::string::npos)
      << job_.verdict.ToString();
  EXPECT_GE(transport_.Count(transport_.PeerOf(4711), Op::kStatus), 1);
}

// A rendezvous with one worker and the server; the other worker is missing.
class VouchedTest : public RendezvousTest {
 protected:
  VouchedTest() {
    Register(Role::kServer, 4710);
    Register(Role::kWorker, 4711);
    for (const int32_t port : {4710, 4711}) {
      Run(seconds(1));
      rendezvous_.waiting()->OnConnected(transport_.PeerOf(port));
    }
  }
  void VouchOnce(int32_t workers, uint64_t token = 1) {
    Message message = Vouch(workers, token);
    message.peer = kEmpty;
    rendezvous_.OnMessage(message);
  }
  // A launcher vouches all the time.
  void RunVouched(bs::Duration duration, int32_t workers = 1) {
    for (bs::Duration left = duration; left > bs::Duration(0); left -= options_.report_interval) {
      VouchOnce(workers);
      Run(std::min(left, options_.report_interval));
    }
  }
};

TEST_F(VouchedTest, TheJobWaitsBeyondTheTimeoutForAWorkerThatLives) {
  RunVouched(options_.timeout + seconds(30));
  EXPECT_EQ(job_.phase, Phase::kGathering);
  EXPECT_TRUE(Logged("waiting for 1 of 2 workers, whose processes live"));
  Register(Role::kWorker, 4712);
  EXPECT_EQ(begun_, 1);
}

TEST_F(VouchedTest, TheJobEndsSoonAfterTheLastWordOfTheLauncher) {
  RunVouched(options_.timeout + seconds(30));
  Run(5 * options_.report_interval);
  EXPECT_TRUE(job_.over());
  EXPECT_NE(job_.verdict.message().find("missing 1 of 2 workers"), std::string::npos);
  EXPECT_EQ(job_.verdict.message().find("bslaunch"), std::string::npos);
}

TEST_F(VouchedTest, ThreeTimeoutsEndEveryWait) {
  RunVouched(Rendezvous::kMostTimeouts * options_.timeout - seconds(10));
  EXPECT_EQ(job_.phase, Phase::kGathering);
  RunVouched(seconds(15));
  EXPECT_TRUE(job_.over());
  EXPECT_NE(
      job_.verdict.message().find(
          "after 180 s still missing 1 of 2 workers; registered: server 10.0.0.9:4710, worker "
          "10.0.0.9:4711; bslaunch says that the missing workers' processes live, but no "
          "job waits for longer than 3 times BYTESCHEDULER_RENDEZVOUS_TIMEOUT"),
      std::string::npos)
      << job_.verdict.ToString();
}

TEST_F(VouchedTest, AWordAboutFewerWorkersThanAreMissingHoldsNothing) {
  RunVouched(options_.timeout + seconds(1), 0);
  EXPECT_TRUE(job_.over());
}

TEST_F(VouchedTest, NoMoreLaunchersThanWorkersAreRemembered) {
  RunVouched(options_.timeout - seconds(5), 0);
  VouchOnce(0, 2);
  VouchOnce(1, 3);  // the third
  Run(seconds(6));
  EXPECT_TRUE(job_.over());
}

TEST_F(RendezvousTest, NoLauncherVouchesForAServer) {
  Register(Role::kWorker, 4711);
  Run(seconds(1));
  rendezvous_.waiting()->OnConnected(transport_.PeerOf(4711));
  for (int second = 0; second < 60; ++second) {
    Message message = Vouch(2, 1);
    message.peer = kEmpty;
    rendezvous_.OnMessage(message);
    Run(seconds(1));
  }
  EXPECT_TRUE(job_.over());
}

TEST_F(RendezvousTest, AnAttachedWorkerThatWaitsIsIntroducedWhenTheJobBegins) {
  const auto stock = [](Role role, int32_t port) {
    Message message;
    message.peer = kEmpty;
    message.meta.is_control = true;
    message.meta.control.command = Command::kAddNode;
    message.meta.control.nodes = {NodeAt(role, port)};
    return message;
  };
  Message attaches = Registration(Role::kWorker, 4720, options_.settings);
  attaches.meta.extension.op = Op::kAttach;
  attaches.meta.extension.body = Encode(MemberBody{.rank = 0, .settings = options_.settings});
  rendezvous_.OnMessage(attaches);
  EXPECT_EQ(job_.early.size(), 1U);
  Register(Role::kServer, 4710);
  rendezvous_.OnMessage(stock(Role::kWorker, 4711));
  rendezvous_.OnMessage(stock(Role::kWorker, 4712));
  EXPECT_EQ(begun_, 1);
  EXPECT_TRUE(job_.early.empty());
  EXPECT_EQ(StateOf(AttachedId(0)), PeerState::kJoining);
  Confirm(kServer);
  EXPECT_EQ(StateOf(AttachedId(0)), PeerState::kListed);
}

TEST_F(RendezvousTest, ARegistrationAfterTheEndIsRefused) {
  shutdown_.End(bs::Status::Unavailable("over"));
  Register(Role::kWorker, 4711);
  EXPECT_TRUE(Logged("refused: worker 10.0.0.9:4711: over"));
}

}  // namespace
}  // namespace ps
