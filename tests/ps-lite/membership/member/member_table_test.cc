// MemberTable: each pair of state and event has a row, or is a repeat or a violation; the page
// agrees.
#include "membership/member/member_table.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "ps-lite/membership/table_page.h"

namespace ps {
namespace {

using Text = test::TableText<MemberTable, MemberRules>;

MemberState Next(MemberState state, MemberEvent event) {
  const MemberTable table;
  const MemberTable::Row* const row = table.Find(state, event, [](MemberCondition condition) {
    return condition != MemberCondition::kNoOneListens;
  });
  return row == nullptr ? state : row->next.value_or(state);
}

TEST(MemberTable, IsTheOneOfThePage) {
  test::ExpectOnPage(test::kPage, "member", Text::Of(MemberTable()));
}

TEST(MemberTable, NoPairHasRowsThatContradictOrAreNotReached) { Text::CheckRows(MemberTable()); }

TEST(MemberTable, EachStateIsReached) {
  EXPECT_EQ(Text::Reachable(MemberTable()).size(), Text::States().size());
}

TEST(MemberTable, ViolationsAreMistakesOfTheOwner) {
  const std::set<std::pair<MemberState, MemberEvent>> expected = {
      {MemberState::kRegistering, MemberEvent::kGoodbye},
      {MemberState::kLeaving, MemberEvent::kClose},
      {MemberState::kParting, MemberEvent::kClose},
      {MemberState::kClosed, MemberEvent::kGoodbye},
  };
  EXPECT_EQ(Text::ViolationsOf(MemberTable()), expected);
}

TEST(MemberTable, AFailureAfterTheGoodbyeIsARepeat) {
  for (const MemberState state : Text::States()) {
    const bool counts = state == MemberState::kRegistering || TakesPart(state);
    EXPECT_EQ(MemberTable().HasRow(state, MemberEvent::kFailure), counts) << Text::NameOf(state);
  }
}

TEST(MemberTable, AGoodbyeGoesOnWhenTheJobEnds) {
  EXPECT_EQ(Next(MemberState::kLeaving, MemberEvent::kJobEnds), MemberState::kParting);
  EXPECT_EQ(Next(MemberState::kParting, MemberEvent::kGoodbyeEnds), MemberState::kParted);
  EXPECT_EQ(Next(MemberState::kOver, MemberEvent::kGoodbye), MemberState::kParting);
}

TEST(MemberTable, EachStateIsInTheGroupsThatItsNameSays) {
  for (const MemberState state : Text::States()) {
    EXPECT_FALSE(TakesPart(state) && (IsOver(state) || HasLeft(state))) << Text::NameOf(state);
  }
  EXPECT_TRUE(IsOver(MemberState::kParted) && HasLeft(MemberState::kParted));
  EXPECT_FALSE(IsOver(MemberState::kClosed) || HasLeft(MemberState::kClosed));
}

}  // namespace
}  // namespace ps
