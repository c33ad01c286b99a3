// Peers: one step of a place, its action, and what an event without a row means.
#include "membership/coordinator/peers.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ps {
namespace {

constexpr int32_t kId = 9;

class PeersTest : public ::testing::Test {
 protected:
  Peers peers_{PeerTable(),
               {.holds =
                    [this](PeerCondition condition, const Peer&, const PeerDetails&) {
                      return condition == PeerCondition::kAlways || holds_.contains(condition);
                    },
                .act =
                    [this](PeerAction action, Peer* peer, const PeerDetails& details) {
                      actions_.emplace_back(action, peer->state);
                      if (action == PeerAction::kConnect) {
                        peer->node.role = details.newcomer.node.role;
                        peer->native = details.native;
                      }
                      if (action == PeerAction::kVacate) peers_.Apply(11, PeerEvent::kAllThere);
                    }}};

  std::set<PeerCondition> holds_;
  std::vector<std::pair<PeerAction, PeerState>> actions_;
};

TEST_F(PeersTest, AnIdWithoutAPlaceIsFree) {
  EXPECT_EQ(peers_.Find(kId), nullptr);
  EXPECT_EQ(peers_.Apply(kId, PeerEvent::kGoodbye), Peers::Outcome::kViolation);
  EXPECT_EQ(peers_.Apply(kId, PeerEvent::kLost), Peers::Outcome::kRepeat);
  EXPECT_EQ(peers_.Find(kId), nullptr) << "no row, no place";
  EXPECT_TRUE(actions_.empty());
}

TEST_F(PeersTest, AnActionSeesThePlaceInItsNextState) {
  EXPECT_EQ(peers_.Apply(kId, PeerEvent::kAllThere), Peers::Outcome::kDone);
  ASSERT_EQ(actions_.size(), 1U);
  EXPECT_EQ(actions_[0], std::pair(PeerAction::kConnect, PeerState::kListed));
  EXPECT_EQ(peers_.Find(kId)->node.id, kId);
}

TEST_F(PeersTest, AnActionMayApplyAnEventToAnotherPlace) {
  peers_.Apply(kId, PeerEvent::kAllThere);
  holds_ = {PeerCondition::kReplaceable};
  Peer* const place = peers_.Find(kId);
  peers_.Apply(kId, PeerEvent::kLost);
  EXPECT_EQ(peers_.Find(kId), place) << "places stay where they are";
  EXPECT_EQ(place->state, PeerState::kVacating);
  EXPECT_EQ(peers_.Find(11)->state, PeerState::kListed);
}

TEST_F(PeersTest, ARepeatChangesNothing) {
  peers_.Apply(kId, PeerEvent::kAllThere);
  EXPECT_EQ(peers_.Apply(kId, PeerEvent::kAllThere), Peers::Outcome::kRepeat);
  EXPECT_EQ(peers_.Apply(kId, PeerEvent::kAddressShared), Peers::Outcome::kRepeat)
      << "no row whose condition holds";
  EXPECT_EQ(actions_.size(), 1U);
}

TEST_F(PeersTest, NativeServersAreTheNativeServersInTheJob) {
  PeerDetails server{.newcomer = {{.role = Role::kServer}, 1}};
  peers_.Apply(8, PeerEvent::kAllThere, server);
  peers_.Apply(10, PeerEvent::kAllThere, server);
  server.native = false;
  peers_.Apply(12, PeerEvent::kAllThere, server);
  peers_.Apply(kId, PeerEvent::kAllThere, {.newcomer = {{.role = Role::kWorker}, 1}});
  EXPECT_EQ(peers_.NativeServers(), (std::vector<int32_t>{8, 10}));
  peers_.Apply(8, PeerEvent::kGoodbye);
  EXPECT_EQ(peers_.NativeServers(), (std::vector<int32_t>{10}));
}

}  // namespace
}  // namespace ps
