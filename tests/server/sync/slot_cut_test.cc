// Slots whose key is cut anew: what rank 0 says about it, and the first round of the new cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/bodies.h"
#include "server/bench.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

class SlotCutBench : public SlotBench {
 public:
  explicit SlotCutBench(SlotId id = {7, 0}, uint64_t first_round = 0)
      : SlotBench({.num_workers = 2, .id = id, .first_round = first_round}) {}

  void Complete(uint64_t round, const std::string& next) {
    Ask first = Push(0, round, Floats({1}));
    first.next = next;
    DoOk(first);
    if (round > 0) Do(Push(1, round, Floats({2})));
  }
  std::string NextOf(uint64_t round) { return test::ResponseIn(PullNow(1, round, 4)).next_layout; }
};

TEST(SlotCutTest, TheTextOfRankZeroComesWithTheSumOfItsRoundOnly) {
  SlotCutBench bench;
  bench.Complete(0, "");
  bench.Complete(1, "one");
  bench.Complete(2, "");
  EXPECT_EQ(bench.NextOf(1), "one") << "whoever did not hear it asks again";
  EXPECT_EQ(bench.NextOf(2), "");
  bench.Complete(3, "three");
  EXPECT_EQ(bench.NextOf(2), "");
  EXPECT_EQ(bench.NextOf(3), "three");
  // Rank 0 is in the open round already; a repeat of an older pull gets its own round's word.
  Ask ahead = Push(0, 4, Floats({1}));
  ahead.next = "four";
  bench.Do(ahead);
  EXPECT_EQ(bench.NextOf(3), "three");
  bench.Do(Push(1, 4, Floats({2})));
  bench.Complete(5, "");
  EXPECT_EQ(bench.NextOf(4), "four");
  EXPECT_EQ(bench.NextOf(5), "") << "what was said in round 3 is not said again";
}

TEST(SlotCutTest, TheTextOfRankZeroComesWithTheContributionOfItsHost) {
  SlotBench bench({.num_workers = 3, .hosts = {0, 0, 1}});
  bench.Round(0, {0});
  Ask host = Push(1, 1, Floats({1}));
  host.stands_for = 2;
  host.next = "one";
  bench.DoOk(host);
  bench.DoOk(Push(2, 1, Floats({2})));
  EXPECT_EQ(test::ResponseIn(bench.PullNow(2, 1, 4)).next_layout, "one");
}

TEST(SlotCutTest, OnlyRankZeroSaysItWithPartitionZeroOfALaterRound) {
  SlotCutBench bench;
  const auto refused = [](SlotCutBench* to, Ask ask) {
    ask.next = "next";
    const auto [code, text] = to->Refused(ask);
    EXPECT_EQ(code, StatusCode::kInvalidArgument);
    EXPECT_THAT(text, HasSubstr("only worker 0 says how a key is cut"));
  };
  refused(&bench, Push(0, 0, Floats({1})));
  bench.Complete(0, "");
  refused(&bench, Push(1, 1, Floats({1})));
  SlotCutBench other({7, 1});
  other.Complete(0, "");
  Ask push = Push(0, 1, Floats({1}));
  push.partition = 1;
  refused(&other, push);
}

TEST(SlotCutTest, ANewCutTakesItsShapeFromItsFirstRound) {
  SlotCutBench bench({7, 0, 1}, 5);
  Ask pull = Pull(1, 5, 8);
  EXPECT_TRUE(bench.Do(pull).empty()) << "it may come before every push";
  bench.Complete(5, "");
  EXPECT_EQ(bench.Refused(Push(1, 4, Floats({1}))).first, StatusCode::kFailedPrecondition)
      << "round 4 is the old cut's";
  EXPECT_EQ(bench.Refused(Push(0, 6, Floats({1, 2}))).first, StatusCode::kInvalidArgument);
  EXPECT_EQ(ToFloats(bench.PullNow(0, 5, 4).data.at(0).bytes()), std::vector<float>{3});
}

}  // namespace
}  // namespace bs::server
