// PeerTable: each pair of state and event has a row, or is a repeat or a violation; the page
// agrees.
#include "membership/coordinator/peer_table.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "ps-lite/membership/table_page.h"

namespace ps {
namespace {

using Text = test::TableText<PeerTable, PeerRules>;

bool Always(PeerCondition condition) { return condition == PeerCondition::kAlways; }

TEST(PeerTable, IsTheOneOfThePage) {
  test::ExpectOnPage(test::kPage, "scheduler node", Text::Of(PeerTable()));
}

TEST(PeerTable, TheHeaderExplainsEachState) {
  std::ifstream file(BS_SOURCE_DIR "/3rdparty/ps-lite/src/membership/coordinator/peer_table.h");
  const std::string header((std::istreambuf_iterator<char>(file)), {});
  for (const PeerState state : Text::States()) {
    std::string name = Text::NameOf(state);
    name[0] = static_cast<char>(std::toupper(name[0]));
    EXPECT_TRUE(std::regex_search(header, std::regex("  k" + name + ", +// \\w"))) << name;
  }
}

TEST(PeerTable, NoPairHasRowsThatContradictOrAreNotReached) { Text::CheckRows(PeerTable()); }

TEST(PeerTable, EachStateIsReached) {
  EXPECT_EQ(Text::Reachable(PeerTable()).size(), Text::States().size());
}

// A node uses an id only once it was sent the list.
TEST(PeerTable, ViolationsAreMessagesUnderAnIdThatTheSenderCannotHave) {
  const std::set<std::pair<PeerState, PeerEvent>> expected = {
      {PeerState::kFree, PeerEvent::kHeard},
      {PeerState::kFree, PeerEvent::kFormerHeard},
      {PeerState::kFree, PeerEvent::kGoodbye},
      {PeerState::kJoining, PeerEvent::kGoodbye},
  };
  EXPECT_EQ(Text::ViolationsOf(PeerTable()), expected);
}

TEST(PeerTable, ALossIsARepeatOnceTheHolderLeftOrIsLost) {
  const PeerTable table;
  for (const PeerState state : Text::States()) {
    EXPECT_EQ(table.HasRow(state, PeerEvent::kLost), IsPresent(state)) << Text::NameOf(state);
    EXPECT_FALSE(table.IsViolation(state, PeerEvent::kLost)) << Text::NameOf(state);
  }
}

TEST(PeerTable, OfSeveralRowsTheFirstWithAConditionThatHoldsCounts) {
  const PeerTable table;
  const auto next = [&table](PeerCondition held) {
    return table
        .Find(PeerState::kLive, PeerEvent::kLost,
              [held](PeerCondition condition) { return Always(condition) || condition == held; })
        ->next;
  };
  EXPECT_EQ(next(PeerCondition::kAttachedLeft), PeerState::kLeft);
  EXPECT_EQ(next(PeerCondition::kReplaceable), PeerState::kVacating);
  EXPECT_EQ(next(PeerCondition::kAlways), PeerState::kLost);
}

TEST(PeerTable, ASuccessorWaitsUntilEveryServerKnowsTheLoss) {
  const PeerTable table;
  const auto next = [&table](PeerState state, PeerEvent event) {
    return table.Find(state, event, Always)->next;
  };
  EXPECT_EQ(next(PeerState::kVacating, PeerEvent::kComes), PeerState::kClaimed);
  EXPECT_EQ(next(PeerState::kClaimed, PeerEvent::kLossKnown), PeerState::kJoining);
  EXPECT_EQ(next(PeerState::kVacating, PeerEvent::kLossKnown), PeerState::kVacant);
  EXPECT_EQ(next(PeerState::kVacant, PeerEvent::kComes), PeerState::kJoining);
}

TEST(PeerTable, EachStateIsInTheGroupsThatItsNameSays) {
  for (const PeerState state : Text::States()) {
    const int groups = (IsPresent(state) ? 1 : 0) + (HasLeft(state) ? 1 : 0) +
                       (IsVacant(state) ? 1 : 0) + (state == PeerState::kLost ? 1 : 0);
    EXPECT_EQ(groups, state == PeerState::kFree ? 0 : 1) << Text::NameOf(state);
  }
  EXPECT_TRUE(IsOver(PeerState::kLost) && !IsOver(PeerState::kVacant));
  EXPECT_TRUE(IsOver(PeerState::kLeft) && !IsOver(PeerState::kLeaving));
  EXPECT_TRUE(HasNoProcess(PeerState::kClosed) && !HasNoProcess(PeerState::kLeft));
}

}  // namespace
}  // namespace ps
