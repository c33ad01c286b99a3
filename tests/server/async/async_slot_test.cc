#include "server/async/async_slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"
#include "server/async/async_bench.h"
#include "sim/coded/slow_codec.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

TEST(AsyncSlotTest, APushIsAppliedAtOnceAndNoWorkerWaitsForAnother) {
  AsyncBench bench(3);
  bench.DoOk(Push(0, 0, Floats({10})));
  EXPECT_EQ(bench.PullNow(2, 0), std::vector<float>{10});
  bench.DoOk(Push(1, 1, Floats({1})));
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{11});
  bench.DoOk(Push(1, 2, Floats({2})));
  EXPECT_EQ(bench.PullNow(1, 2), std::vector<float>{13});
  bench.DoOk(Push(0, 1, Floats({4})));
  EXPECT_EQ(bench.PullNow(2, 0), std::vector<float>{17}) << "a pull without a push sees them all";
}

TEST(AsyncSlotTest, ACodedPushIsTheGradientItsCodesStandFor) {
  AsyncBench bench(2);
  bench.DoOk(Push(0, 0, Floats({10})));
  const auto word = [](unsigned code) {
    return std::vector<std::byte>{static_cast<std::byte>(code << 6U), {}, {}, {}};
  };
  for (int repeat = 0; repeat < 2; ++repeat) bench.DoOk(PushTwoBit(1, 1, 0.5F, 1, word(3)));
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{10.5F});
  bench.DoOk(PushTwoBit(1, 2, 2, 1, word(2)));
  EXPECT_EQ(bench.PullNow(1, 2), std::vector<float>{8.5F});
  bench.DoOk(Push(0, 1, Floats({1})));
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{9.5F}) << "workers need not agree";
}

TEST(AsyncSlotTest, CodingSecondsCountCodedPushesAlone) {
  using Slow = sim::SlowBf16<sim::SimClock>;
  const codec::Table codecs({Slow::Row()});
  AsyncBench bench({.codecs = &codecs});
  const auto seconds = [&bench] {
    Metrics metrics;
    bench.shard().Measure(&metrics);
    return metrics.numbers().at({"coding_seconds_total", Metrics::kWhole});
  };
  bench.DoOk(Push(0, 0, Floats({10})));
  bench.DoOk(Push(0, 1, Floats({1})));
  EXPECT_EQ(seconds(), 0);
  Ask coded = Push(0, 2, std::vector<std::byte>(2));
  coded.size_bytes = sizeof(float);
  coded.coding = Slow::Coding(&bench.clock);
  bench.DoOk(coded);
  EXPECT_NEAR(seconds(), 0.002, 1e-9);
}

// The elements of randomk follow from the number of the job.
TEST(AsyncSlotTest, ACodedPushIsDecodedWithTheNumberOfTheJob) {
  constexpr size_t kElements = 64;
  constexpr uint64_t kJob = 12345;
  AsyncBench bench({.job = kJob});
  bench.DoOk(Push(0, 0, Floats(std::vector<float>(kElements))));
  const std::string_view name = "randomk";
  const codec::Option options[] = {{"k", "0.25"}};
  const Coding coding = codec::Builtin().Parse(&name, options).value();
  const codec::Codec& randomk = codec::Builtin().Get(coding);
  std::vector<float> gradient(kElements);
  for (size_t i = 0; i < kElements; ++i) gradient[i] = static_cast<float>(i + 1);
  Ask push = Push(0, 1, std::vector<std::byte>(kElements));
  randomk.encode(coding.parameters, {.job = kJob, .key = 7, .round = 1}, gradient.data(), nullptr,
                 push.payload.data(), kElements);
  push.coding = coding;
  push.size_bytes = kElements * sizeof(float);
  bench.DoOk(push);
  bench.Post(bench.Newest(Pull(0, 1, push.size_bytes)));
  const std::vector<float> weights = ToFloats(bench.outbox.Next().data.at(0).bytes());
  for (size_t i = 0; i < kElements; ++i) {
    EXPECT_TRUE(weights[i] == 0 || weights[i] == 4 * gradient[i]) << i << ": " << weights[i];
  }
  EXPECT_EQ(std::count(weights.begin(), weights.end(), 0), kElements - kElements / 4);
}

TEST(AsyncSlotTest, RepeatsAreAcknowledgedAndAppliedOnce) {
  AsyncBench bench(2);
  for (int i = 0; i < 3; ++i) bench.DoOk(Push(0, 0, Floats({10})));
  for (const uint64_t round : {1, 1, 2, 1, 2, 3, 2}) bench.DoOk(Push(1, round, Floats({1})));
  bench.DoOk(Push(0, 0, Floats({77})));
  bench.DoOk(Push(0, 1, Floats({100})));
  EXPECT_EQ(bench.PullNow(1, 3), std::vector<float>{113});
}

TEST(AsyncSlotTest, APullThatOvertookItsPushWaitsForIt) {
  AsyncBench bench(2);
  bench.DoOk(Push(0, 0, Floats({0})));
  EXPECT_TRUE(bench.Do(Pull(1, 1, 4)).empty());
  const std::vector<ps::Message> repeated = bench.Do(Pull(1, 1, 4));
  ASSERT_EQ(repeated.size(), 1u);
  EXPECT_EQ(OpOf(repeated[0]), ps::Op::kPending);
  EXPECT_EQ(TextOf(repeated[0]), "its own push 1 of key 7");
  const std::vector<ps::Message> answers = bench.Do(Push(1, 1, Floats({5})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(ToFloats(answers[1].data.at(0).bytes()), std::vector<float>{5});
}

TEST(AsyncSlotTest, PullsWaitForTheInitialValue) {
  AsyncBench bench(3);
  EXPECT_TRUE(bench.Do(Pull(2, 0, 4)).empty());
  EXPECT_EQ(bench.Refused(Push(2, 1, Floats({1}))).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.Refused(Push(1, 0, Floats({1}))).first, StatusCode::kFailedPrecondition);
  const std::vector<ps::Message> answers = bench.Do(Push(0, 0, Floats({3})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(RankOf(answers[1]), 2);
  EXPECT_EQ(ToFloats(answers[1].data.at(0).bytes()), std::vector<float>{3});
}

// Whoever asks for many keys, or for one twice, has the weights of all: nothing is his alone.
TEST(AsyncSlotTest, AnswersOfOneMomentKeepNothing) {
  AsyncBench bench(3);
  bench.DoOk(Push(0, 0, Floats({1})));
  std::vector<ps::Message> leaving;
  for (int i = 0; i < 3; ++i) {
    leaving.push_back(std::move(bench.Do(bench.Newest(Pull(0, 0, 4))).at(0)));
    EXPECT_FALSE(leaving.back().keeps_memory);
  }
  // Updates that he has not asked for are not his, however many there were.
  for (uint64_t round = 1; round <= 3; ++round) bench.DoOk(Push(1, round, Floats({1})));
  leaving.push_back(std::move(bench.Do(bench.Newest(Pull(0, 0, 4))).at(0)));
  EXPECT_TRUE(leaving.back().keeps_memory);  // beside the first
  leaving.clear();
  bench.DoOk(Push(1, 4, Floats({1})));
  EXPECT_FALSE(bench.Do(bench.Newest(Pull(0, 0, 4))).at(0).keeps_memory);  // he has read the others
}

TEST(AsyncSlotTest, AnAnswerInFlightKeepsItsBytes) {
  AsyncBench bench(3);
  bench.DoOk(Push(0, 0, Floats({1})));
  std::vector<ps::Message> leaving;
  for (uint64_t round = 1; round <= 4; ++round) {
    bench.DoOk(Push(0, round, Floats({1})));
    leaving.push_back(std::move(bench.Do(Pull(0, round, 4)).at(0)));
  }
  for (size_t i = 0; i < leaving.size(); ++i) {
    EXPECT_EQ(ToFloats(leaving[i].data.at(0).bytes()),
              std::vector<float>{static_cast<float>(i + 2)});
    // From the second on, each has memory of its own, which counts for who does not read it.
    EXPECT_EQ(leaving[i].keeps_memory, i > 0);
  }
  // The repeat of the pull whose answer is still leaving gets no second copy; a newer pull does.
  const std::vector<ps::Message> repeated = bench.Do(Pull(0, 4, 4));
  ASSERT_EQ(repeated.size(), 1u);
  EXPECT_EQ(OpOf(repeated[0]), ps::Op::kPending);
  EXPECT_EQ(bench.PullNow(0, 4), std::vector<float>{5});
  leaving.clear();
  EXPECT_EQ(bench.Refused(Pull(0, 4, 4)).first, StatusCode::kCancelled) << "older than the newest";
}

TEST(AsyncSlotTest, RatesOfAPushWinOverTheOptimizers) {
  AsyncBench bench({.optimizer = "sgd learning_rate=1 wd=0.5 rescale_grad=2"});
  bench.DoOk(Push(0, 0, Floats({8})));
  bench.DoOk(Push(0, 1, Floats({1})));  // 8 - (2 * 1 + 0.5 * 8)
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{2});
  protocol::Call call = AsyncBench::Call(Push(0, 2, Floats({1})));
  call.request.learning_rate = 0.5;
  call.request.weight_decay = 0.0;
  call.request.rescale_grad = -4.0;
  bench.shard().Handle(std::move(call));
  EXPECT_EQ(CodeOf(bench.outbox.Next()), StatusCode::kOk);
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{4});
  protocol::Call bad = AsyncBench::Call(Push(0, 3, Floats({1})));
  bad.request.learning_rate = std::numeric_limits<double>::quiet_NaN();
  bench.shard().Handle(std::move(bad));
  EXPECT_EQ(CodeOf(bench.outbox.Next()), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{4});
}

TEST(AsyncSlotTest, TheStateOfAnOptimizerIsAskedForOnce) {
  uint64_t available_bytes = uint64_t{8} << 20U;
  AsyncBench bench({.available_bytes = [&] { return available_bytes; }});
  const std::vector<std::byte> value = Floats(std::vector<float>(1U << 18U, 1));  // a MiB
  bench.Set("adam");
  bench.DoOk(Push(0, 0, value));
  available_bytes = (2U << 20U) - 1;
  const auto [code, text] = bench.Refused(Push(0, 1, value));
  EXPECT_EQ(code, StatusCode::kResourceExhausted);
  EXPECT_THAT(text,
              HasSubstr("push_count=1 partition=0 from worker 0: its 2097152 bytes do not fit"));
  available_bytes += 1;
  bench.DoOk(Push(0, 1, value));
  available_bytes = 0;
  bench.DoOk(Push(0, 2, value));
}

TEST(AsyncSlotTest, ANewOptimizerStartsItsStateAfresh) {
  AsyncBench bench({.optimizer = "sgd learning_rate=-1 momentum=0.5"});
  bench.DoOk(Push(0, 0, Floats({0})));
  bench.DoOk(Push(0, 1, Floats({4})));
  bench.DoOk(Push(0, 2, Floats({0})));
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{6});
  bench.Set("sgd learning_rate=-1 momentum=0.5");
  bench.DoOk(Push(0, 3, Floats({0})));
  EXPECT_EQ(bench.PullNow(0, 3), std::vector<float>{6}) << "the momentum is gone";
}

TEST(AsyncSlotTest, WithoutAnOptimizerAPushIsRefused) {
  AsyncBench bench({.optimizer = ""});
  bench.DoOk(Push(0, 0, Floats({1})));
  const auto [code, text] = bench.Refused(Push(0, 1, Floats({1})));
  EXPECT_EQ(code, StatusCode::kFailedPrecondition);
  EXPECT_THAT(text,
              HasSubstr("push key=7 push_count=1 partition=0 from worker 0: no optimizer is set"));
  EXPECT_THAT(text, HasSubstr("call set_optimizer"));
  bench.Set("sgd learning_rate=-1");
  bench.DoOk(Push(0, 1, Floats({1})));
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{2});
}

TEST(AsyncSlotTest, AWrongRequestIsRefusedAndChangesNothing) {
  AsyncBench bench(2);
  bench.DoOk(Push(0, 0, Floats({1})));
  EXPECT_EQ(bench.Refused(Push(0, 2, Floats({1}))).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.Refused(Push(0, 1, Floats({1, 2}))).first, StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.Refused(Push(1, 0, Floats({1}))).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.Refused(Pull(0, 2, 4)).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.Refused(Pull(0, 0, 8)).first, StatusCode::kInvalidArgument);
  EXPECT_THAT(bench.Refused(PushTwoBit(0, 1, 0, 1, Floats({1}))).second,
              HasSubstr("threshold 0: want a finite number greater than 0"));
  EXPECT_THAT(bench.Refused(PushTwoBit(0, 1, 0.5F, 1, Floats({1, 2}))).second,
              HasSubstr("8 bytes came, 4 were announced"));
  EXPECT_EQ(bench.PullNow(0, 0), std::vector<float>{1});
  Ask whole = Push(0, 0, Encode(DType::kInt32, {1}));
  whole.dtype = DType::kInt32;
  whole.key = 8;
  bench.DoOk(whole);
  whole.round = 1;
  const auto [code, text] = bench.Refused(whole);
  EXPECT_EQ(code, StatusCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("int32 of 4 bytes cannot be updated"));
}

TEST(AsyncSlotTest, AKeyHasOneMode) {
  AsyncBench bench(2);
  bench.DoOk(Push(0, 0, Floats({1})));
  bench.shard().Handle(MakeCall(Push(1, 1, Floats({1}))));
  const ps::Message answer = bench.outbox.Next();
  EXPECT_EQ(CodeOf(answer), StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(answer), HasSubstr("the key is asynchronous on the other workers"));
}

TEST(AsyncSlotTest, StalenessBoundsHowFarAWorkerIsAhead) {
  AsyncBench bench({.num_workers = 3, .max_staleness = 2});
  bench.DoOk(Push(0, 0, Floats({0})));
  for (const uint64_t round : {1, 2}) {
    bench.DoOk(Push(0, round, Floats({1})));
    EXPECT_FALSE(bench.PullNow(0, round).empty());
  }
  bench.DoOk(Push(0, 3, Floats({1})));
  const Ask third = bench.Newest(Pull(0, 3, 4));
  EXPECT_TRUE(bench.Do(third).empty()) << "1 and 2 have not pushed once";
  const std::vector<ps::Message> repeated = bench.Do(third);
  ASSERT_EQ(repeated.size(), 1u);
  EXPECT_SNAPSHOT(TextOf(repeated[0]),
                  "workers 1, 2 to push key 7 1 time (BYTESCHEDULER_MAX_STALENESS=2)");
  EXPECT_EQ(bench.Do(Push(2, 1, Floats({10}))).size(), 1u) << "1 has not";
  const std::vector<ps::Message> answers = bench.Do(Push(1, 1, Floats({100})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(ToFloats(answers[1].data.at(0).bytes()), std::vector<float>{113});
}

TEST(AsyncSlotTest, NoWorkerWaitsForAWorkerThatLeft) {
  AsyncBench bench({.num_workers = 2, .max_staleness = 0});
  bench.DoOk(Push(0, 0, Floats({0})));
  bench.DoOk(Push(0, 1, Floats({1})));
  EXPECT_TRUE(bench.Do(Pull(0, 1, 4)).empty());
  bench.shard().OnWorkerGone(1, Status::Unavailable("worker 1 left the job"));
  EXPECT_EQ(ToFloats(bench.outbox.Next().data.at(0).bytes()), std::vector<float>{1});
  bench.DoOk(Push(0, 2, Floats({1})));
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{2});
}

TEST(AsyncSlotTest, WithoutWorker0NothingIsInitialised) {
  AsyncBench bench(2);
  EXPECT_TRUE(bench.Do(Pull(1, 0, 4)).empty());
  bench.shard().OnWorkerGone(0, Status::Unavailable("worker 0 left the job"));
  EXPECT_EQ(TextOf(bench.outbox.Next()), "worker 0 left the job");
  EXPECT_EQ(bench.Refused(bench.Newest(Pull(1, 0, 4))).first, StatusCode::kUnavailable);
}

TEST(AsyncSlotTest, AFailedJobRefusesPendingRequests) {
  AsyncBench bench({.num_workers = 2, .max_staleness = 0});
  bench.DoOk(Push(0, 0, Floats({0})));
  bench.DoOk(Push(0, 1, Floats({0})));
  EXPECT_TRUE(bench.Do(Pull(0, 1, 4)).empty());
  bench.shard().Fail(Status::Unavailable("lost worker 1"));
  EXPECT_EQ(TextOf(bench.outbox.Next()), "lost worker 1");
}

TEST(AsyncSlotTest, ANewWorkerInAPlaceCountsFromOneAndIsWaitedForOnceItPushes) {
  AsyncBench bench({.num_workers = 2, .max_staleness = 0});
  bench.DoOk(Push(0, 0, Floats({0})));
  for (const uint64_t round : {1, 2, 3}) {
    bench.DoOk(Push(1, round, Floats({1})));
    bench.DoOk(Push(0, round, Floats({1})));
  }
  bench.DoOk(Push(0, 4, Floats({1})));
  EXPECT_TRUE(bench.Do(bench.Newest(Pull(0, 4, 4))).empty()) << "worker 1 is behind";
  bench.shard().OnWorkerVacant(1);
  EXPECT_EQ(bench.outbox.All().size(), 1u) << "nobody waits for the lost one";
  EXPECT_EQ(bench.PullNow(1, 0), std::vector<float>{7});
  bench.DoOk(Push(1, 1, Floats({10})));
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{17});
  bench.DoOk(Push(0, 5, Floats({1})));
  EXPECT_EQ(bench.PullNow(0, 5), std::vector<float>{18});
  bench.DoOk(Push(0, 6, Floats({1})));
  EXPECT_TRUE(bench.Do(bench.Newest(Pull(0, 6, 4))).empty()) << "it counts from where they were";
}

}  // namespace
}  // namespace bs::server
