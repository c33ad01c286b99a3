// Slots whose key is cut anew: what rank 0 says about it, and the first round of the new cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/bodies.h"
#include "server/support.h"
#include "server/sync/slot.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

class SlotCutTest : public testing::Test {
 protected:
  SlotCutTest() {
    state_.view = job::ShareView({.role = job::Role::kServer}, 2, 1);
    state_.send = outbox_.sender();
  }
  std::vector<ps::Message> Do(Slot* slot, const Ask& ask) {
    protocol::Call call = MakeCall(ask);
    ask.op == ps::Op::kPush ? slot->Push(call) : slot->Pull(call);
    return outbox_.All();
  }
  void Complete(Slot* slot, Round round, const std::string& next) {
    Ask first = Push(0, round, Floats({1}));
    first.next = next;
    for (const ps::Message& answer : Do(slot, first)) EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
    if (round > 0) Do(slot, Push(1, round, Floats({2})));
  }
  std::string NextOf(Slot* slot, Round round) {
    const std::vector<ps::Message> answers = Do(slot, Pull(1, round, 4));
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? "" : test::ResponseIn(answers[0]).next_layout;
  }

  Outbox outbox_;
  ShardState state_;
};

TEST_F(SlotCutTest, WhatRankZeroSaysComesWithTheSumOfThatRoundOnly) {
  Slot slot(&state_, SlotId{7, 0});
  Complete(&slot, 0, "");
  Complete(&slot, 1, "one");
  Complete(&slot, 2, "");
  EXPECT_EQ(NextOf(&slot, 1), "one") << "whoever did not hear it asks again";
  EXPECT_EQ(NextOf(&slot, 2), "");
  Complete(&slot, 3, "three");
  EXPECT_EQ(NextOf(&slot, 2), "");
  EXPECT_EQ(NextOf(&slot, 3), "three");
  // Rank 0 is in the open round already; a repeat of an older pull gets its own round's word.
  Ask ahead = Push(0, 4, Floats({1}));
  ahead.next = "four";
  Do(&slot, ahead);
  EXPECT_EQ(NextOf(&slot, 3), "three");
  Do(&slot, Push(1, 4, Floats({2})));
  Complete(&slot, 5, "");
  EXPECT_EQ(NextOf(&slot, 4), "four");
  EXPECT_EQ(NextOf(&slot, 5), "") << "what was said in round 3 is not said again";
}

TEST_F(SlotCutTest, OnlyRankZeroSaysItWithPartitionZeroOfALaterRound) {
  Slot slot(&state_, SlotId{7, 0});
  const auto refused = [&](Slot* to, Ask ask) {
    ask.next = "next";
    const std::vector<ps::Message> answers = Do(to, ask);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(answers[0]), HasSubstr("only worker 0 says how a key is cut"));
  };
  refused(&slot, Push(0, 0, Floats({1})));
  Complete(&slot, 0, "");
  refused(&slot, Push(1, 1, Floats({1})));
  Slot other(&state_, SlotId{7, 1});
  Complete(&other, 0, "");
  Ask push = Push(0, 1, Floats({1}));
  push.partition = 1;
  refused(&other, push);
}

TEST_F(SlotCutTest, ANewCutTakesItsShapeFromItsFirstRound) {
  Slot slot(&state_, SlotId{7, 0, 1}, 5);
  Ask pull = Pull(1, 5, 8);
  EXPECT_TRUE(Do(&slot, pull).empty()) << "it may come before every push";
  Complete(&slot, 5, "");
  const std::vector<ps::Message> late = Do(&slot, Push(1, 4, Floats({1})));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(CodeOf(late[0]), StatusCode::kFailedPrecondition) << "round 4 is the old cut's";
  const std::vector<ps::Message> wide = Do(&slot, Push(0, 6, Floats({1, 2})));
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_EQ(CodeOf(wide[0]), StatusCode::kInvalidArgument);
  EXPECT_EQ(ToFloats(Do(&slot, Pull(0, 5, 4)).at(0).data.at(0).bytes()), std::vector<float>{3});
}

}  // namespace
}  // namespace bs::server
