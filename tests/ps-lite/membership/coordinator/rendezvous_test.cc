// Rendezvous: registrations before the job, and the moment in which it begins.
#include "membership/coordinator/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

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
