// How a key comes to life: rank 0 publishes, the others fetch.
#include "worker/broadcast.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

PsWorkerOptions CutOptionsOf(int32_t rank) {
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = rank}, 2, 2));
  options.partition_bytes = 100;  // cut at 64
  options.credit_bytes = 64;
  return options;
}

using test::About;

TEST(Broadcast, RankZeroDeclaresThenPushesItsValue) {
  std::vector<std::byte> value = Bytes(192, 0);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(i);
  Bench bench(CutOptionsOf(0));
  const Outcome* const done = bench.Broadcast(7, DType::kInt32, value);
  ps::Message declare = bench.Next();
  EXPECT_EQ(About(declare).op, ps::Op::kDeclare);
  EXPECT_EQ(declare.peer, ps::ServerId(static_cast<int32_t>(protocol::HomeServer(7, 2))));
  EXPECT_EQ(About(declare).tensor_bytes, 192U);
  EXPECT_EQ(About(declare).partition_bytes, 64U);
  EXPECT_EQ(About(declare).dtype, static_cast<uint32_t>(DType::kInt32));
  ASSERT_EQ(declare.data.size(), 1U);
  EXPECT_EQ(declare.data[0].size(), 6U);
  EXPECT_TRUE(bench.Quiet()) << "the value goes when the key is declared";
  bench.Answer(std::move(declare));
  std::vector<ps::Message> pushes;
  pushes.push_back(bench.Next());
  pushes.push_back(bench.Next());
  EXPECT_TRUE(bench.Quiet()) << "credit counts for the first value too";
  bench.Answer(std::move(pushes[0]));
  bench.Answer(std::move(pushes[1]));
  ps::Message last = bench.Next();
  EXPECT_EQ(About(last).partition, 2U);
  EXPECT_EQ(About(last).round, 0U);
  EXPECT_EQ(About(last).offset_bytes, 128U);
  EXPECT_EQ(last.data[0].bytes().data(), value.data() + 128);
  EXPECT_EQ(done->calls, 0) << "not before everything is acknowledged";
  bench.Answer(std::move(last));
  EXPECT_TRUE(done->ok());
}

TEST(Broadcast, OtherWorkersFollowTheCutOfRankZero) {
  std::vector<std::byte> value = Bytes(200, 0);
  Bench bench(CutOptionsOf(1));
  const Outcome* const done = bench.Broadcast(7, DType::kUint8, value);
  ps::Message lookup = bench.Next();
  EXPECT_EQ(About(lookup).op, ps::Op::kLookup);
  EXPECT_EQ(About(lookup).tensor_bytes, 200U);
  const std::byte servers[] = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}};
  bench.AnswerLookup(std::move(lookup), 128, servers);
  ps::Message first = bench.Next();
  ps::Message second = bench.Next();
  EXPECT_EQ(first.peer, ps::ServerId(1));
  EXPECT_EQ(second.peer, ps::ServerId(0));
  EXPECT_EQ(About(first).size_bytes, 128U);
  EXPECT_EQ(About(second).size_bytes, 72U);
  bench.Answer(std::move(second), Bytes(72, 2));
  EXPECT_EQ(done->calls, 0);
  bench.Answer(std::move(first), Bytes(128, 1));
  EXPECT_TRUE(done->ok());
  EXPECT_EQ(std::count(value.begin(), value.end(), std::byte{1}), 128);
  EXPECT_EQ(std::count(value.begin(), value.end(), std::byte{2}), 72);
}

TEST(Broadcast, TensorThatDiffersFromRankZerosConcernsOnlyThatCall) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(CutOptionsOf(1));
  const Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  bench.Refuse(bench.Next(), Status::InvalidArgument("key 7: worker 1 has float32 of 64 bytes"));
  EXPECT_EQ(done->code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sum.pulled->code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(bench.failures.empty());
  bench.Broadcast(7, DType::kFloat32, value);
  EXPECT_EQ(About(bench.Next()).op, ps::Op::kLookup) << "it may be tried again";
}

TEST(Broadcast, OtherRefusalsFailTheWorker) {
  std::vector<std::byte> value = Bytes(64, 0);
  Bench bench(CutOptionsOf(1));
  const Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
  const Outcome* const other = bench.Broadcast(8, DType::kFloat32, value);
  bench.Refuse(bench.Next(), Status::Unavailable("worker 0 left the job"));
  EXPECT_EQ(done->code(), StatusCode::kUnavailable);
  EXPECT_EQ(other->code(), StatusCode::kUnavailable);
  EXPECT_EQ(bench.failures.size(), 1U);
}

TEST(Broadcast, FailureWhileTheValueTravelsEndsItOnce) {
  std::vector<std::byte> value = Bytes(256, 0);
  for (const int32_t rank : {0, 1}) {
    Bench bench(CutOptionsOf(rank));
    const Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
    if (rank == 0) {
      bench.Answer(bench.Next());
    } else {
      bench.AnswerLookup(bench.Next(), 64, Bytes(8, 0));
    }
    bench.Refuse(bench.Next(), Status::ResourceExhausted("no memory"));
    bench.sent.clear();
    bench.Run();
    EXPECT_EQ(done->calls, 1);
    EXPECT_EQ(done->text(), "no memory");
    EXPECT_EQ(bench.failures.size(), 1U);
  }
}

}  // namespace
}  // namespace bs::worker
