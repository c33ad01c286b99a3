// Places: newcomers, lost workers and their successors.
#include "membership/coordinator/places.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "ps-lite/membership/coordinator/parts.h"

namespace ps {
namespace {

using std::chrono::seconds;

class PlacesTest : public test::Parts {
 protected:
  PlacesTest() : Parts(seconds(60)) { RunJob(); }

  const Peer& place() const { return *job_.peers.Find(kWorker1); }
};

TEST_F(PlacesTest, TheSuccessorGetsThePlaceOnceEveryServerKnowsTheLoss) {
  places_.Lose(kWorker1, "connection closed");
  EXPECT_EQ(StateOf(kWorker1), PeerState::kVacating);
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  EXPECT_EQ(StateOf(kWorker1), PeerState::kClaimed);
  EXPECT_EQ(place().node.port, 4712);
  Confirm(kServer);
  EXPECT_EQ(StateOf(kWorker1), PeerState::kJoining);
  EXPECT_EQ(place().node.port, 4720);
  EXPECT_EQ(place().incarnation, 1U);
  EXPECT_EQ(transport_.Count(kWorker1, Op::kRegister), 0);
  Confirm(kServer);
  EXPECT_EQ(StateOf(kWorker1), PeerState::kListed);
  EXPECT_EQ(transport_.Count(kWorker1, Op::kRegister), 1) << "the list";
}

TEST_F(PlacesTest, AWorkerThatComesLaterGetsTheVacantPlaceAtOnce) {
  places_.Lose(kWorker1, "connection closed");
  Confirm(kServer);
  EXPECT_EQ(StateOf(kWorker1), PeerState::kVacant);
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  EXPECT_EQ(StateOf(kWorker1), PeerState::kJoining);
}

TEST_F(PlacesTest, AWorkerThatComesBeforeTheLossIsNoticedWaits) {
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  EXPECT_TRUE(Logged("worker 10.0.0.9:4720 came, and no place is free yet"));
  places_.Lose(kWorker1, "connection closed");
  EXPECT_EQ(StateOf(kWorker1), PeerState::kClaimed);
}

TEST_F(PlacesTest, AWorkerThatWaitsInVainIsRefused) {
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  Run(options_.heartbeat_timeout + 2 * options_.heartbeat_interval + options_.reconnect_grace);
  EXPECT_TRUE(Logged("refused: worker 10.0.0.9:4720 came too late"));
}

TEST_F(PlacesTest, NoWorkerInTimeEndsTheJob) {
  places_.Lose(kWorker1, "connection closed");
  Confirm(kServer);
  Run(seconds(59));
  EXPECT_EQ(job_.phase, Phase::kRunning);
  Run(seconds(1));
  EXPECT_EQ(job_.phase, Phase::kEnding);
  EXPECT_NE(job_.verdict.message().find("no worker took its place in 60 s"), std::string::npos)
      << job_.verdict.ToString();
}

TEST_F(PlacesTest, ATimeoutOfAnEarlierLossEndsNothing) {
  places_.Lose(kWorker1, "connection closed");
  Confirm(kServer);
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  Confirm(kServer);
  job_.peers.Apply(kWorker1, PeerEvent::kHeard);
  detector_.OnConnected(kWorker1);
  Run(seconds(30));
  places_.Lose(kWorker1, "connection closed");
  Run(seconds(31));
  EXPECT_EQ(job_.phase, Phase::kRunning) << "the place was free for 31 s";
}

TEST_F(PlacesTest, AServerIsNotReplaced) {
  EXPECT_FALSE(places_.MayReplace(*job_.peers.Find(kServer)));
  EXPECT_TRUE(places_.MayReplace(place()));
}

TEST_F(PlacesTest, ALostHolderThatSpeaksIsNotifiedThatItHasNoPlace) {
  places_.Lose(kWorker1, "silent");
  Message heartbeat;
  heartbeat.peer = kWorker1;
  heartbeat.meta = NativeControl(Command::kHeartbeat, Op::kState, 9);
  heartbeat.meta.control.nodes = {NodeAt(Role::kWorker, 4712)};
  job_.peers.Apply(kWorker1, PeerEvent::kHeard, {.message = &heartbeat});
  EXPECT_EQ(transport_.Count(transport_.PeerOf(4712), Op::kShutdown), 1);
}

TEST_F(PlacesTest, ALateRepeatOfALostHoldersRegistrationIsRecognised) {
  EXPECT_FALSE(places_.IsFormer(NodeAt(Role::kWorker, 4712), 1));
  places_.Lose(kWorker1, "silent");
  EXPECT_TRUE(places_.IsFormer(NodeAt(Role::kWorker, 4712), 1));
  EXPECT_FALSE(places_.IsFormer(NodeAt(Role::kWorker, 4712), 2)) << "another process";
}

TEST_F(PlacesTest, AHolderThatRepeatsItsRegistrationIsSentTheListAgain) {
  Arrival repeat = ArrivalOf(Role::kWorker, 4712);
  repeat.repeat = true;
  places_.Register(repeat);
  EXPECT_EQ(transport_.Count(kWorker1, Op::kRegister), 1);
  EXPECT_EQ(StateOf(kWorker1), PeerState::kLive);
}

TEST_F(PlacesTest, TheEndOfTheJobRefusesWorkersThatWait) {
  places_.Lose(kWorker1, "connection closed");
  places_.Register(ArrivalOf(Role::kWorker, 4720));
  places_.Register(ArrivalOf(Role::kWorker, 4721));
  shutdown_.End(bs::Status::Unavailable("over"));
  EXPECT_EQ(transport_.Count(transport_.PeerOf(4720), Op::kStatus), 1);
  EXPECT_EQ(transport_.Count(transport_.PeerOf(4721), Op::kStatus), 1);
  EXPECT_EQ(StateOf(kWorker1), PeerState::kVacating);
}

}  // namespace
}  // namespace ps
