// Tests of the simulator: it finds a mistake in each of membership's tables of states.
#include <gtest/gtest.h>

#include <vector>

#include "membership/coordinator/peer_table.h"
#include "membership/member/member_table.h"
#include "membership/member/neighbours.h"
#include "sim/cluster.h"
#include "sim/mutants.h"

namespace bs::sim {
namespace {

using ps::MemberEvent;
using ps::MemberState;
using ps::MemberTable;
using ps::NeighbourEvent;
using ps::NeighbourState;
using ps::NeighbourTable;
using ps::PeerEvent;
using ps::PeerState;
using ps::PeerTable;

// The table without the rows of a pair.
template <typename Table, typename State, typename Event>
Table Without(State state, Event event) {
  const Table table;
  std::vector<typename Table::Row> rows = table.rows();
  EXPECT_GT(std::erase_if(rows,
                          [&](const typename Table::Row& row) {
                            return row.event == event && row.states.contains(state);
                          }),
            0U);
  return {rows, table.violations()};
}

// The table whose rows of a pair lead to another state.
template <typename Table, typename State, typename Event>
Table WithNext(State state, Event event, State next) {
  const Table table;
  std::vector<typename Table::Row> rows = table.rows();
  for (typename Table::Row& row : rows) {
    if (row.event == event && row.states.contains(state)) row.next = next;
  }
  return {rows, table.violations()};
}

// Returns true if one of the first clusters of `draw` breaks a promise with this table.
bool IsFoundOut(const PeerTable& table, ClusterOptions (*draw)(uint64_t)) {
  return IsFoundOut(draw, [&](ClusterOptions* options) { options->test_peers = table; });
}
bool IsFoundOut(const MemberTable& table, ClusterOptions (*draw)(uint64_t)) {
  return IsFoundOut(draw, [&](ClusterOptions* options) { options->test_members = table; });
}
bool IsFoundOut(const NeighbourTable& table, ClusterOptions (*draw)(uint64_t)) {
  return IsFoundOut(draw, [&](ClusterOptions* options) { options->test_neighbours = table; });
}

// The successor would wait for the place for ever.
TEST(MembershipMutants, AMissingRowIsFoundOut) {
  EXPECT_TRUE(
      IsFoundOut(Without<PeerTable>(PeerState::kClaimed, PeerEvent::kLossKnown), DrawRejoin));
}

// The job would not end.
TEST(MembershipMutants, AMissingRowOfTheEndIsFoundOut) {
  EXPECT_TRUE(
      IsFoundOut(Without<PeerTable>(PeerState::kLeaving, PeerEvent::kGoodbyeKnown), DrawCluster));
}

// The newcomer would get the place before every server knows the loss of the last holder.
TEST(MembershipMutants, AWrongNextStateIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(
      WithNext<PeerTable>(PeerState::kListed, PeerEvent::kLost, PeerState::kVacant), DrawRejoin));
}

// A worker that left would count as one that trains.
TEST(MembershipMutants, AWrongNextStateOfTheEndIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(
      WithNext<PeerTable>(PeerState::kLeaving, PeerEvent::kGoodbyeKnown, PeerState::kLive),
      DrawCluster));
}

// A worker or server that left would wait for the response for ever.
TEST(MembershipMutants, AMissingRowOfAMemberIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(Without<MemberTable>(MemberState::kLeaving, MemberEvent::kGoodbyeEnds),
                         DrawCluster));
}

// A worker or server would not notice that the job is lost.
TEST(MembershipMutants, AMissingRowOfAMembersFailureIsFoundOut) {
  EXPECT_TRUE(
      IsFoundOut(Without<MemberTable>(MemberState::kReady, MemberEvent::kFailure), DrawDeath));
}

// The response to the goodbye would come to a member that has left.
TEST(MembershipMutants, AWrongNextStateOfAMemberIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(
      WithNext<MemberTable>(MemberState::kReady, MemberEvent::kGoodbye, MemberState::kLeft),
      DrawCluster));
}

// A server would wait for a worker that is lost.
TEST(MembershipMutants, AMissingRowOfANeighbourIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(Without<NeighbourTable>(NeighbourState::kKnown, NeighbourEvent::kVacated),
                         DrawRejoin));
}

// A server would talk to the worker that had the place.
TEST(MembershipMutants, AWrongNextStateOfANeighbourIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(WithNext<NeighbourTable>(NeighbourState::kVacant, NeighbourEvent::kComes,
                                                  NeighbourState::kVacant),
                         DrawRejoin));
}

}  // namespace
}  // namespace bs::sim
