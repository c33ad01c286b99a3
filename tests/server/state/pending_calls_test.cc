#include "server/state/pending_calls.h"

#include <gtest/gtest.h>

#include "server/support.h"

namespace bs::server {
namespace {

PendingCalls::Whom Says(const char* whom) {
  return [whom](const protocol::Call&) { return whom; };
}

protocol::Call Waiting(int32_t rank, uint64_t sequence, int32_t priority = 0) {
  Ask ask = Pull(rank, 1, 4);
  ask.sequence = sequence;
  ask.priority = priority;
  return MakeCall(ask);
}

TEST(PendingCallsTest, TheMostUrgentComesFirstAndEqualsKeepTheirOrder) {
  Outbox outbox;
  PendingCalls calls;
  calls.Add(Waiting(0, 1, -5), Says("x"), outbox.sender());
  calls.Add(Waiting(1, 1, 3), Says("x"), outbox.sender());
  calls.Add(Waiting(2, 1, -5), Says("x"), outbox.sender());
  calls.Add(Waiting(3, 1, 9), Says("x"), outbox.sender());
  std::vector<int32_t> ranks;
  for (const protocol::Call& call : calls.TakeAll()) ranks.push_back(call.worker_rank);
  EXPECT_EQ(ranks, (std::vector<int32_t>{3, 1, 0, 2}));
  EXPECT_TRUE(calls.empty());
  EXPECT_TRUE(outbox.empty());
}

TEST(PendingCallsTest, ARepeatIsToldThatItIsAliveAndTheMissingWorker) {
  Outbox outbox;
  PendingCalls calls;
  calls.Add(Waiting(1, 8), Says("worker 0"), outbox.sender());
  calls.Add(Waiting(1, 8), Says("worker 0"), outbox.sender());
  const ps::Message pending = outbox.Next();
  EXPECT_EQ(OpOf(pending), ps::Op::kPending);
  EXPECT_EQ(TextOf(pending), "worker 0");
  EXPECT_EQ(pending.meta.extension.sequence, 8u);
  EXPECT_EQ(pending.peer, ps::WorkerId(1));
  EXPECT_EQ(calls.TakeAll().size(), 1u) << "and is pending once";
}

TEST(PendingCallsTest, OfTwoRequestsOfAWorkerTheNewerStays) {
  Outbox outbox;
  PendingCalls calls;
  calls.Add(Waiting(1, 8, 2), Says("x"), outbox.sender());
  calls.Add(Waiting(1, 9), Says("x"), outbox.sender());
  calls.Add(Waiting(1, 7), Says("x"), outbox.sender());
  ps::Message first = outbox.Next();
  ps::Message second = outbox.Next();
  EXPECT_EQ(first.meta.extension.sequence, 8u);
  EXPECT_EQ(second.meta.extension.sequence, 7u);
  EXPECT_EQ(CodeOf(first), StatusCode::kCancelled);
  EXPECT_EQ(CodeOf(second), StatusCode::kCancelled);
  const std::vector<protocol::Call> left = calls.TakeAll();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].extension.sequence, 9u);
}

TEST(PendingCallsTest, RefusingAnswersEveryCallOnceAndForgettingAnswersNoCall) {
  Outbox outbox;
  PendingCalls calls;
  for (int32_t rank = 0; rank < 3; ++rank) calls.Add(Waiting(rank, 1), Says("x"), outbox.sender());
  calls.Forget(1);
  EXPECT_TRUE(outbox.empty());
  calls.RefuseAll(Status::Unavailable("worker 1 left"), outbox.sender());
  ASSERT_EQ(outbox.size(), 2u);
  for (const ps::Message& refusal : outbox.All()) {
    EXPECT_NE(RankOf(refusal), 1);
    EXPECT_EQ(CodeOf(refusal), StatusCode::kUnavailable);
    EXPECT_EQ(TextOf(refusal), "worker 1 left");
  }
  EXPECT_TRUE(calls.empty());
}

}  // namespace
}  // namespace bs::server
