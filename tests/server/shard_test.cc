#include "server/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/snapshot.h"
#include "server/support.h"

namespace bs::server {
namespace {

ShardState StateFor(int32_t num_workers, Outbox* outbox) {
  ShardState state;
  state.view = job::ShareView({.role = job::Role::kServer}, num_workers, 1);
  state.hold_bytes = 8;
  state.send = outbox->sender();
  return state;
}

TEST(ShardTest, PartitionsAndKeysHaveRoundsOfTheirOwn) {
  Outbox outbox;
  Shard shard(StateFor(1, &outbox));
  float value = 1;
  for (const uint64_t key : {uint64_t{7}, uint64_t{8}, UINT64_MAX}) {
    for (const uint32_t partition : {0u, 1u, UINT32_MAX}) {
      Ask push = Push(0, 0, Floats({value++}));
      push.key = key;
      push.partition = partition;
      shard.Handle(MakeCall(push));
    }
  }
  for (const ps::Message& taken : outbox.All()) EXPECT_EQ(CodeOf(taken), StatusCode::kOk);
  Ask pull = Pull(0, 0, 4);
  pull.key = 8;
  pull.partition = 1;
  shard.Handle(MakeCall(pull));
  EXPECT_EQ(ToFloats(outbox.Next().data.at(0).bytes()), std::vector<float>{5});
}

TEST(ShardTest, APushPullOfAnAsynchronousKeyIsRefused) {
  Outbox outbox;
  Shard shard(StateFor(1, &outbox));
  Ask ask = PushPull(0, 0, Floats({1}));
  ask.mode = Mode::kAsynchronous;
  shard.Handle(MakeCall(ask));
  const ps::Message refusal = outbox.Next();
  EXPECT_EQ(CodeOf(refusal), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      TextOf(refusal),
      "push-pull key=7 push_count=0 partition=0 from worker 0: of an asynchronous key push and "
      "pull go apart");
}

TEST(ShardTest, TheHoldBudgetIsOneForAllPartitions) {
  Outbox outbox;
  Shard shard(StateFor(4, &outbox));
  // Values whose sum shows the order: by rank 1, by arrival 2.
  const float values[] = {1e8f, 1, -1e8f, 1};
  const auto push = [&](uint32_t partition, int32_t rank, uint64_t round, float value) {
    Ask ask = Push(rank, round, Floats({value}));
    ask.partition = partition;
    shard.Handle(MakeCall(ask));
  };
  for (const uint32_t partition : {0u, 1u}) push(partition, 0, 0, 0);
  push(0, 2, 1, values[2]);
  push(0, 3, 1, values[3]);  // the budget of 8 bytes is spent
  push(1, 2, 1, values[2]);
  for (const uint32_t partition : {0u, 1u}) {
    push(partition, 0, 1, values[0]);
    push(partition, 1, 1, values[1]);
  }
  push(1, 3, 1, values[3]);
  outbox.All();
  for (const uint32_t partition : {0u, 1u}) {
    Ask pull = Pull(0, 1, 4);
    pull.partition = partition;
    shard.Handle(MakeCall(pull));
  }
  EXPECT_EQ(ToFloats(outbox.Next().data.at(0).bytes()), std::vector<float>{1}) << "held";
  EXPECT_EQ(ToFloats(outbox.Next().data.at(0).bytes()), std::vector<float>{2}) << "by arrival";
}

TEST(ShardTest, WithoutMemoryARequestIsRefusedAndOtherRequestsGoOn) {
  Outbox outbox;
  Shard shard(StateFor(2, &outbox));
  // More than any address space has; the bytes themselves are never read.
  constexpr size_t kHuge = size_t{1} << 60;
  protocol::Call huge = MakeCall(Push(0, 0, Floats({1})));
  huge.request.size_bytes = kHuge;
  const std::vector<std::byte> bytes = Floats({1});
  huge.payload = ps::Frame::Borrow({bytes.data(), kHuge}, {});
  shard.Handle(std::move(huge));
  const ps::Message refusal = outbox.Next();
  EXPECT_EQ(CodeOf(refusal), StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(refusal), testing::HasSubstr("push key=7 round=0 partition=0 from worker 0"));
  Ask other = Push(0, 0, Floats({1}));
  other.partition = 1;
  shard.Handle(MakeCall(other));
  EXPECT_EQ(CodeOf(outbox.Next()), StatusCode::kOk);
}

TEST(ShardTest, AWorkerThatIsGoneIsGoneForPartitionsYetToCome) {
  Outbox outbox;
  Shard shard(StateFor(2, &outbox));
  shard.OnWorkerGone(1, Status::Unavailable("worker 1 left"));
  shard.OnWorkerGone(1, Status::Unavailable("the second reason does not count"));
  shard.Handle(MakeCall(Push(0, 0, Floats({1}))));
  EXPECT_EQ(CodeOf(outbox.Next()), StatusCode::kOk) << "round 0 does not need worker 1";
  shard.Handle(MakeCall(Push(0, 1, Floats({1}))));
  EXPECT_EQ(TextOf(outbox.Next()), "worker 1 left");
}

TEST(ShardTest, AfterFailEverythingIsRefused) {
  Outbox outbox;
  Shard shard(StateFor(2, &outbox));
  shard.Handle(MakeCall(Push(0, 0, Floats({1}))));
  outbox.All();
  shard.Handle(MakeCall(Pull(1, 1, 4)));
  EXPECT_TRUE(outbox.empty());
  shard.Fail(Status::Unavailable("lost worker 0"));
  EXPECT_EQ(TextOf(outbox.Next()), "lost worker 0");
  shard.Fail(Status::Unavailable("again"));
  EXPECT_TRUE(outbox.empty());
  shard.Handle(MakeCall(Pull(1, 0, 4)));
  EXPECT_EQ(TextOf(outbox.Next()), "lost worker 0");
}

}  // namespace
}  // namespace bs::server
