// Tests of the simulator: it finds each rule of protocol/rules.h that a worker or server breaks.
#include <gtest/gtest.h>

#include <cstdint>

#include "protocol/rules.h"
#include "sim/cluster.h"
#include "sim/mutants.h"

namespace bs::sim {
namespace {

class OneBuffer final : public protocol::Rules {
  uint32_t num_buffers() const override { return 1; }
};

// With one buffer a fast worker's push overwrites the sum that a slow one has not pulled yet
// (docs/design/decisions/0002-two-buffers-and-a-round-number.md).
TEST(RulesMutants, OneSumBufferIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(OneBuffer(), DrawCluster, {Broken::kSum}));
}

class CreditWithTheSum final : public protocol::Rules {
  bool credit_returns_with_the_push() const override { return false; }
};

// If credit returns with the sum, two workers that have spent theirs on different keys wait for
// each other for ever (docs/design/decisions/0003-credit-at-the-push-acknowledgement.md).
TEST(RulesMutants, CreditHeldUntilTheSumComesIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CreditWithTheSum(), DrawCluster, {Broken::kStuck}));
}

class NewLayoutAtOnce final : public protocol::Rules {
  bool layouts_change_behind_their_round() const override { return false; }
};

// If rank 0 cuts a key anew in the round that announces it, the other workers push that round as it
// was cut before, and no partition ever has everyone's push.
TEST(RulesMutants, CutInTheRoundThatTellsOfItIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(NewLayoutAtOnce(), DrawTuning, {Broken::kSum}));
}

class KeysGoWithTheFirstWorker final : public protocol::Rules {
  bool keys_go_when_all_workers_give_them_back() const override { return false; }
};

// If a server forgets a key that one worker gives back, another worker's round finds no partition
// any more.
TEST(RulesMutants, KeyForgottenBeforeAllWorkersGiveItBackIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(KeysGoWithTheFirstWorker(), DrawGivingBack, {Broken::kStatus}));
}

class GrantsOfTheLeaderAlone final : public protocol::Rules {
  bool grants_wait_for_all_workers() const override { return false; }
};

// Another rank would sum memory that is not ready.
TEST(RulesMutants, GrantsOnTheReadinessOfRankZeroAloneAreFoundOut) {
  EXPECT_TRUE(IsFoundOut(GrantsOfTheLeaderAlone(), DrawGrants));
}

class GrantsAsTheyCome final : public protocol::Rules {
  bool grants_are_executed_in_order() const override { return false; }
};

// Ranks would sum different tensors with each other.
TEST(RulesMutants, AFollowerThatReordersIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(GrantsAsTheyCome(), DrawGrants));
}

class GrantsAgainAndAgain final : public protocol::Rules {
  bool grants_are_executed_once() const override { return false; }
};

// The other ranks would wait for the next call of this rank.
TEST(RulesMutants, AGrantThatIsExecutedTwiceIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(GrantsAgainAndAgain(), DrawGrants));
}

TEST(RulesMutants, MistakesOfTheLeaderAndItsFollowersAmongHostsAreFoundOut) {
  EXPECT_TRUE(IsFoundOut(GrantsOfTheLeaderAlone(), DrawHostGrants));
  EXPECT_TRUE(IsFoundOut(GrantsAsTheyCome(), DrawHostGrants));
}

class AddsUpBesideTheOwner final : public protocol::Rules {
  bool library_adds_up_on_owners() const override { return false; }
};

// The owner exchanges memory that has no sum.
TEST(RulesMutants, APartitionThatALibraryAddsUpOnAnotherWorkerIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(AddsUpBesideTheOwner(), DrawHostGrants, {Broken::kSum}));
}

class CopyBeforeTheLibraryHasAdded final : public protocol::Rules {
  bool library_copies_wait_for_all() const override { return false; }
};

TEST(RulesMutants, CopyThatLeavesBeforeALibraryHasAddedIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CopyBeforeTheLibraryHasAdded(), DrawHostGrants, {Broken::kSum}));
}

class GivesToAllButOne final : public protocol::Rules {
  bool library_gives_sums_to_all() const override { return false; }
};

TEST(RulesMutants, SumThatALibraryDoesNotGiveToAWorkerIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(GivesToAllButOne(), DrawHostGrants, {Broken::kStuck}));
}

class CopyBeforeAllAreIn final : public protocol::Rules {
  bool host_copies_wait_for_all() const override { return false; }
};

TEST(RulesMutants, CopyThatLeavesBeforeAllAreInIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CopyBeforeAllAreIn(), DrawHosts, {Broken::kSum}));
}

class CopyTwice final : public protocol::Rules {
  bool host_copies_leave_once() const override { return false; }
};

TEST(RulesMutants, CopyThatLeavesTwiceIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CopyTwice(), DrawHosts, {Broken::kSum}));
}

class CopyByTheOwnersCredit final : public protocol::Rules {
  bool host_copies_have_their_own_credit() const override { return false; }
};

// Two workers of a host wait for each other's contributions.
TEST(RulesMutants, CopyThatWaitsForTheOwnersCreditIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CopyByTheOwnersCredit(), DrawHosts, {Broken::kStuck}));
}

class SumForAllButOneWorker final : public protocol::Rules {
  bool host_sums_go_to_all() const override { return false; }
};

TEST(RulesMutants, SumThatAWorkerDoesNotGetIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(SumForAllButOneWorker(), DrawHosts, {Broken::kStuck}));
}

}  // namespace
}  // namespace bs::sim
