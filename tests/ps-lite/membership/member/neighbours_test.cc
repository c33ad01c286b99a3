// Neighbours: the states of the nodes that a member works with; the page agrees.
#include "membership/member/neighbours.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "ps-lite/membership/table_page.h"

namespace ps {
namespace {

using NeighbourText = test::TableText<NeighbourTable, NeighbourRules>;

constexpr int32_t kId = 9;

class NeighboursTest : public ::testing::Test {
 protected:
  static Node NodeAt(int32_t port) {
    Node node;
    node.id = kId;
    node.port = port;
    return node;
  }
  bool Apply(NeighbourEvent event, int32_t port = 4711) {
    return neighbours_.Apply(NodeAt(port), event);
  }

  Neighbours neighbours_{[this](NeighbourCondition condition, const Neighbour&) {
                           return condition == NeighbourCondition::kAlways ||
                                  holds_.contains(condition);
                         },
                         [this](NeighbourAction action, Neighbour*, const NeighbourDetails&) {
                           actions_.push_back(action);
                         }};
  std::set<NeighbourCondition> holds_;
  std::vector<NeighbourAction> actions_;
};

TEST(NeighbourTable, IsTheOneOfThePage) {
  test::ExpectOnPage(test::kPage, "neighbour", NeighbourText::Of(NeighbourTable()));
}

TEST(NeighbourTable, EachPairHasRowsOrIsARepeat) {
  NeighbourText::CheckRows(NeighbourTable());
  EXPECT_TRUE(NeighbourTable().violations().empty());
}

TEST(NeighbourTable, EachStateIsReached) {
  EXPECT_EQ(NeighbourText::Reachable(NeighbourTable()).size(), NeighbourText::States().size());
}

TEST_F(NeighboursTest, ALossIsReportedIfTheSchedulerNodeMayReplaceTheNode) {
  EXPECT_FALSE(Apply(NeighbourEvent::kLost)) << "it is not known";
  Apply(NeighbourEvent::kListed);
  EXPECT_TRUE(neighbours_.IsKnown(kId));
  holds_ = {NeighbourCondition::kReplaceable};
  EXPECT_TRUE(Apply(NeighbourEvent::kLost));
  EXPECT_EQ(neighbours_.StateOf(kId), NeighbourState::kReported);
  EXPECT_TRUE(neighbours_.IsExpected(kId)) << "until another has the place";
  EXPECT_FALSE(Apply(NeighbourEvent::kLost)) << "a repeat";
}

TEST_F(NeighboursTest, ALossThatIsNotMissedFailsNoJob) {
  Apply(NeighbourEvent::kListed);
  holds_ = {NeighbourCondition::kReplaceable, NeighbourCondition::kNotMissed};
  Apply(NeighbourEvent::kLost);
  EXPECT_EQ(actions_, (std::vector{NeighbourAction::kConnect, NeighbourAction::kDrop}));
}

TEST_F(NeighboursTest, ANewcomerTakesThePlaceOfALostNode) {
  Apply(NeighbourEvent::kListed);
  Apply(NeighbourEvent::kVacated);
  EXPECT_EQ(neighbours_.FindKnown(kId), nullptr);
  Apply(NeighbourEvent::kComes, 4712);
  EXPECT_EQ(neighbours_.FindKnown(kId)->port, 4712);
}

TEST_F(NeighboursTest, AGoodbyeAfterAReportIsNoLoss) {
  Apply(NeighbourEvent::kListed);
  holds_ = {NeighbourCondition::kReplaceable};
  Apply(NeighbourEvent::kLost);
  EXPECT_TRUE(Apply(NeighbourEvent::kLeaves));
  EXPECT_EQ(neighbours_.StateOf(kId), NeighbourState::kLeft);
  EXPECT_FALSE(neighbours_.IsExpected(kId));
  EXPECT_FALSE(Apply(NeighbourEvent::kLeaves)) << "a repeat";
}

TEST_F(NeighboursTest, AnUnknownNodeStaysUnknownWhenItsPlaceIsVacant) {
  EXPECT_TRUE(Apply(NeighbourEvent::kVacated));
  EXPECT_EQ(neighbours_.StateOf(kId), NeighbourState::kUnknown);
  EXPECT_EQ(actions_, std::vector{NeighbourAction::kVacate});
}

}  // namespace
}  // namespace ps
