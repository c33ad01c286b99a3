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
class OptimizerCallsTest : public testing::Test, protected HostedBench {
 protected:
  explicit OptimizerCallsTest(bool hosts = true)
      : hosted_(hosts ? host.Updater() : ServerUpdater{}),
        calls_(&executor, &hosted_, outbox.sender(),
               [this](const OptimizerInForce& optimizer) { adopted_.push_back(optimizer); }) {}

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

  std::vector<OptimizerInForce> adopted_;
  uint64_t next_sequence_ = 1;
  HostedUpdates hosted_;
  OptimizerCalls calls_;
};

class OptimizerCallsAloneTest : public OptimizerCallsTest {
 protected:
  OptimizerCallsAloneTest() : OptimizerCallsTest(false) {}
};

TEST_F(OptimizerCallsTest, ANativeOneIsTakenAtOnceAndItsPickleIsNotLoaded) {
  Post(0, 1, "sgd momentum=0.5", "p");
  ASSERT_EQ(adopted_.size(), 1u);
  EXPECT_EQ(adopted_[0].native->momentum, 0.5);
  EXPECT_EQ(adopted_[0].hosted->pickle, "p");
  EXPECT_EQ(CodeOf(Settle().at(0)), StatusCode::kOk);
  EXPECT_TRUE(host.calls.empty());
}

TEST_F(OptimizerCallsTest, AHostedOneIsAnsweredWhenItIsLoadedAndOnlyOnce) {
  Post(0, 1, "hosted LAMB", "p0", 77);
  Post(0, 1, "hosted LAMB", "p0", 77);
  Post(1, 1, "hosted LAMB", "p1");
  EXPECT_TRUE(adopted_.empty());
  const std::vector<ps::Message> answers = Settle();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(OpOf(answers[0]), ps::Op::kPending) << "the repeat";
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(CodeOf(answers[2]), StatusCode::kOk);
  EXPECT_EQ(host.calls, std::vector<std::string>{"set p0"}) << "one of each number counts";
  ASSERT_EQ(adopted_.size(), 1u);
  EXPECT_EQ(adopted_[0].native, nullptr);
  EXPECT_EQ(adopted_[0].hosted->pickle, "p0");
  // Of the next number it starts afresh, even if it is the same.
  EXPECT_EQ(CodeOf(Do(1, 2, "hosted LAMB", "p0").at(0)), StatusCode::kOk);
  EXPECT_EQ(host.calls.size(), 2u);
}

TEST_F(OptimizerCallsTest, ARefusedOneConcernsItsCallAndLeavesTheOneBefore) {
  Do(0, 1, "sgd");
  const std::vector<ps::Message> answers = Do(0, 2, "hosted Bad", "bad");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
  EXPECT_EQ(TextOf(answers[0]), "optimizer 2 from worker 0: no such class");
  EXPECT_EQ(adopted_.size(), 1u);
  EXPECT_EQ(CodeOf(Do(1, 2, "hosted Good", "good").at(0)), StatusCode::kOk);
  EXPECT_EQ(adopted_.size(), 2u);
}

TEST_F(OptimizerCallsTest, OtherWorkersTryTheirOwnAfterARefusal) {
  Post(0, 1, "hosted Lamb", "bad");
  Post(1, 1, "hosted Lamb", "good");
  const std::vector<ps::Message> answers = Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(host.calls, (std::vector<std::string>{"set bad", "set good"}));
}

TEST_F(OptimizerCallsTest, WorkersMustAgree) {
  Do(0, 1, "hosted Lamb", "p");
  for (const char* text : {"hosted Lars", "sgd"}) {
    const std::vector<ps::Message> answers = Do(1, 1, text, "p");
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(CodeOf(answers[0]), StatusCode::kInvalidArgument);
    EXPECT_THAT(TextOf(answers[0]), HasSubstr("differs from 'hosted Lamb'"));
  }
  EXPECT_EQ(CodeOf(Do(1, 1, "hosted Lamb", "q").at(0)), StatusCode::kOk)
      << "pickles of one optimizer may differ";
}

TEST_F(OptimizerCallsTest, AWrongCallIsRefused) {
  EXPECT_THAT(TextOf(Do(0, 1, "hosted Lamb").at(0)), HasSubstr("came without its pickle"));
  EXPECT_THAT(TextOf(Do(0, 1, "lamb", "p").at(0)), HasSubstr("servers have none called"));
  const std::string long_name = "hosted " + std::string(kMaxOptimizerBytes, 'x');
  EXPECT_EQ(CodeOf(Do(0, 1, long_name, "p").at(0)), StatusCode::kInvalidArgument);
  const std::string large(OptimizerCalls::kMaxPickleBytes + 1, 'x');
  EXPECT_THAT(TextOf(Do(0, 1, "sgd", large).at(0)), HasSubstr("at most 16777216"));
  EXPECT_TRUE(adopted_.empty());
}

TEST_F(OptimizerCallsAloneTest, TakesOptimizersOfTheServerOnly) {
  EXPECT_THAT(TextOf(Do(0, 1, "hosted Lamb", "p").at(0)), HasSubstr("needs Python"));
  EXPECT_EQ(CodeOf(Do(0, 1, "sgd", "p").at(0)), StatusCode::kOk);
}

TEST_F(OptimizerCallsTest, AFailedJobRefusesPendingCallsAndAGoneWorkerIsForgotten) {
  Post(0, 1, "hosted Lamb", "p");
  Post(1, 1, "hosted Lamb", "p");
  calls_.OnWorkerGone(1);
  calls_.Fail(Status::Unavailable("lost worker 1"));
  const std::vector<ps::Message> answers = Settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(TextOf(answers[0]), "lost worker 1");
}

}  // namespace
}  // namespace bs::server
