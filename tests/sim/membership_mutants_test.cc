// Tests of the simulator: it finds a mistake in the scheduler node's table of states.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "membership/coordinator/peer_table.h"
#include "sim/cluster.h"

namespace bs::sim {
namespace {

using ps::PeerEvent;
using ps::PeerState;
using ps::PeerTable;

// Returns true if one of the first clusters of `draw` breaks a promise with this table.
bool IsFoundOut(const PeerTable& table, ClusterOptions (*draw)(uint64_t)) {
  constexpr uint64_t kSeeds = 50;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ClusterOptions options = draw(seed);
    options.test_peers = table;
    if (!RunCluster(options, seed).problems.empty()) return true;
  }
  return false;
}

// The table without the rows of a pair.
PeerTable Without(PeerState state, PeerEvent event) {
  const PeerTable table;
  std::vector<PeerTable::Row> rows = table.rows();
  EXPECT_GT(std::erase_if(rows,
                          [&](const PeerTable::Row& row) {
                            return row.event == event && row.states.contains(state);
                          }),
            0U);
  return {rows, table.violations()};
}

// The table whose rows of a pair lead to another state.
PeerTable WithNext(PeerState state, PeerEvent event, PeerState next) {
  const PeerTable table;
  std::vector<PeerTable::Row> rows = table.rows();
  for (PeerTable::Row& row : rows) {
    if (row.event == event && row.states.contains(state)) row.next = next;
  }
  return {rows, table.violations()};
}

TEST(MembershipMutants, TheRightTableIsNotFoundOut) {
  EXPECT_FALSE(IsFoundOut(PeerTable(), DrawRejoin));
  EXPECT_FALSE(IsFoundOut(PeerTable(), DrawCluster));
}

// The successor would wait for the place for ever.
TEST(MembershipMutants, AMissingRowIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(Without(PeerState::kClaimed, PeerEvent::kLossKnown), DrawRejoin));
}

// The job would not end.
TEST(MembershipMutants, AMissingRowOfTheEndIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(Without(PeerState::kLeaving, PeerEvent::kGoodbyeKnown), DrawCluster));
}

// The newcomer would get the place before every server knows the loss of the last holder.
TEST(MembershipMutants, AWrongNextStateIsFoundOut) {
  EXPECT_TRUE(
      IsFoundOut(WithNext(PeerState::kListed, PeerEvent::kLost, PeerState::kVacant), DrawRejoin));
}

// A worker that left would count as one that trains.
TEST(MembershipMutants, AWrongNextStateOfTheEndIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(WithNext(PeerState::kLeaving, PeerEvent::kGoodbyeKnown, PeerState::kLive),
                         DrawCluster));
}

}  // namespace
}  // namespace bs::sim
