#include "server/async/optimizer_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/fake_host.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

// A dispatcher and its hosting process.
class Bench : private HostedBench {
 public:
  explicit Bench(bool hosts = true)
      : hosted_(hosts ? host.Updater() : ServerUpdater{}),
        calls_(&executor, &hosted_, outbox.sender(),
               [this](const OptimizerInForce& optimizer) { adopted.push_back(optimizer); }) {}

  void Post(int32_t rank, uint64_t number, const std::string& text, const std::string& pickle = "",
            uint64_t sequence = 0) {
    Ask ask;
    ask.op = ps::Op::kOptimizer;
    ask.rank = rank;
    ask.round = number;
    ask.sequence = sequence == 0 ? next_sequence_++ : sequence;
    protocol::Call call = MakeCall(ask);
    call.request.optimizer = text;
    call.payload = ps::Frame::Copy(pickle);
    calls_.Handle(call);
  }
  std::vector<ps::Message> Do(int32_t rank, uint64_t number, const std::string& text,
                              const std::string& pickle = "") {
    Post(rank, number, text, pickle);
    return Settle();
  }
  OptimizerCalls& calls() { return calls_; }

  using HostedBench::host;
  using HostedBench::Settle;
  std::vector<OptimizerInForce> adopted;

 private:
  uint64_t next_sequence_ = 1;
  HostedUpdates hosted_;
  OptimizerCalls calls_;
};

TEST(OptimizerCallsTest, ANativeOneIsTakenAtOnceAndItsPickleIsNotLoaded) {
  Bench bench;
  bench.Post(0, 1, "sgd momentum=0.5", "p");
  ASSERT_EQ(bench.adopted.size(), 1u);
  EXPECT_EQ(bench.adopted[0].native->momentum, 0.5);
  EXPECT_EQ(bench.adopted[0].hosted->pickle, "p");
  EXPECT_EQ(CodeOf(bench.Settle().at(0)), StatusCode::kOk);
  EXPECT_TRUE(bench.host.calls.empty());
}

TEST(OptimizerCallsTest, AHostedOneIsAnsweredWhenItIsLoadedAndOnlyOnce) {
  Bench bench;
  bench.Post(0, 1, "hosted LAMB", "p0", 77);
  bench.Post(0, 1, "hosted LAMB", "p0", 77);
  bench.Post(1, 1, "hosted LAMB", "p1");
  EXPECT_TRUE(bench.adopted.empty());
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(OpOf(answers[0]), ps::Op::kPending) << "the repeat";
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(CodeOf(answers[2]), StatusCode::kOk);
  EXPECT_EQ(bench.host.calls, std::vector<std::string>{"set p0"}) << "one of each number counts";
  ASSERT_EQ(bench.adopted.size(), 1u);
  EXPECT_EQ(bench.adopted[0].native, nullptr);
  EXPECT_EQ(bench.adopted[0].hosted->pickle, "p0");
  // Of the next number it starts afresh, even if it is the same.
  EXPECT_EQ(CodeOf(bench.Do(1, 2, "hosted LAMB", "p0").at(0)), StatusCode::kOk);
  EXPECT_EQ(bench.host.calls.size(), 2u);
}

TEST(OptimizerCallsTest, ARefusedOneConcernsItsCallAndLeavesTheOneBefore) {
  Bench bench;
  bench.Do(0, 1, "sgd");
  const std::vector<ps::Message> answers = bench.Do(0, 2, "hosted Bad", "bad");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
  EXPECT_EQ(TextOf(answers[0]), "optimizer 2 from worker 0: no such class");
  EXPECT_EQ(bench.adopted.size(), 1u);
  EXPECT_EQ(CodeOf(bench.Do(1, 2, "hosted Good", "good").at(0)), StatusCode::kOk);
  EXPECT_EQ(bench.adopted.size(), 2u);
}

TEST(OptimizerCallsTest, OthersTryTheirOwnAfterARefusal) {
  Bench bench;
  bench.Post(0, 1, "hosted Lamb", "bad");
  bench.Post(1, 1, "hosted Lamb", "good");
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(bench.host.calls, (std::vector<std::string>{"set bad", "set good"}));
}

TEST(OptimizerCallsTest, WorkersMustAgree) {
  Bench bench;
  bench.Do(0, 1, "hosted Lamb", "p");
  for (const char* text : {"hosted Lars", "sgd"}) {
    const std::vector<ps::Message> answers = bench.Do(1, 1, text, "p");
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(answers[0]), HasSubstr("differs from 'hosted Lamb'"));
  }
  EXPECT_EQ(CodeOf(bench.Do(1, 1, "hosted Lamb", "q").at(0)), StatusCode::kOk)
      << "pickles of one optimizer may differ";
}

TEST(OptimizerCallsTest, WhatMakesNoSenseIsRefused) {
  Bench bench;
  EXPECT_THAT(TextOf(bench.Do(0, 1, "hosted Lamb").at(0)), HasSubstr("came without its pickle"));
  EXPECT_THAT(TextOf(bench.Do(0, 1, "lamb", "p").at(0)), HasSubstr("servers have none called"));
  const std::string long_name = "hosted " + std::string(kMaxOptimizerBytes, 'x');
  EXPECT_EQ(CodeOf(bench.Do(0, 1, long_name, "p").at(0)), StatusCode::kInvalidArgument);
  const std::string large(OptimizerCalls::kMaxPickleBytes + 1, 'x');
  EXPECT_THAT(TextOf(bench.Do(0, 1, "sgd", large).at(0)), HasSubstr("at most 16777216"));
  EXPECT_TRUE(bench.adopted.empty());
  Bench alone(false);
  EXPECT_THAT(TextOf(alone.Do(0, 1, "hosted Lamb", "p").at(0)), HasSubstr("needs Python"));
  EXPECT_EQ(CodeOf(alone.Do(0, 1, "sgd", "p").at(0)), StatusCode::kOk);
}

TEST(OptimizerCallsTest, AFailedJobRefusesWhatWaitsAndAGoneWorkerIsForgotten) {
  Bench bench;
  bench.Post(0, 1, "hosted Lamb", "p");
  bench.Post(1, 1, "hosted Lamb", "p");
  bench.calls().OnWorkerGone(1);
  bench.calls().Fail(Status::Unavailable("lost worker 1"));
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(TextOf(answers[0]), "lost worker 1");
}

}  // namespace
}  // namespace bs::server
