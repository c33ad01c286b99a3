// Asynchronous partitions whose updates the hosting process makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/snapshot.h"
#include "server/async/async_bench.h"
#include "server/async/async_slot.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

// The bench with an optimizer that only its hosting process, if it has one, can load.
class HostedSlotBench : public AsyncBench {
 public:
  explicit HostedSlotBench(int32_t num_workers, bool hosts = true)
      : AsyncBench({.num_workers = num_workers, .optimizer = "", .hosts = hosts}) {
    shard().SetOptimizer({nullptr, MakePickle()});
  }

  // What has no `about` is of a key that is cut.
  void Initialise(float value, const std::string& about = "a", bool needs_host = false) {
    protocol::Call call = Call(Push(0, 0, Floats({value})));
    call.request.about = about;
    call.request.hosted = needs_host;
    shard().Handle(std::move(call));
    EXPECT_EQ(CodeOf(outbox.Next()), StatusCode::kOk);
  }

 private:
  std::vector<ps::Message> Responses() override { return Settle(); }
};

TEST(AsyncSlotHostedTest, TheProcessGetsDecodedGradients) {
  HostedSlotBench bench(2);
  bench.Initialise(10);
  bench.Post(Push(1, 1, Floats({1})));
  bench.Post(PushTwoBit(0, 1, 0.5F, 1, std::vector<std::byte>{std::byte{0b11000000}, {}, {}, {}}));
  EXPECT_EQ(bench.Settle().size(), 2u) << "one waited for the other";
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{11.5F});
}

TEST(AsyncSlotHostedTest, PushesOfAllAreAppliedOnceOneAfterTheOther) {
  HostedSlotBench bench(3);
  bench.Initialise(10);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  bench.Post(Push(2, 1, Floats({100})));
  EXPECT_TRUE(bench.outbox.empty()) << "none is in the weights yet";
  EXPECT_EQ(bench.PullNow(0, 0), std::vector<float>{10});
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  for (const ps::Message& repeat : bench.outbox.All()) {
    EXPECT_EQ(OpOf(repeat), ps::Op::kPending);
    EXPECT_SNAPSHOT(TextOf(repeat), "the server to finish an earlier update of key 7");
  }
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 3u);
  for (const ps::Message& answer : answers) EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(Push(1, 1, Floats({10}))).at(0)), StatusCode::kOk) << "a repeat";
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{121});
  EXPECT_EQ(bench.host.abouts, (std::vector<std::string>{"a", "a", "a"}));
}

TEST(AsyncSlotHostedTest, APullWaitsForItsOwnPush) {
  HostedSlotBench bench(2);
  bench.Initialise(0);
  bench.Post(Push(1, 1, Floats({5})));
  bench.Post(Pull(1, 1, 4));
  EXPECT_TRUE(bench.outbox.empty());
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(ToFloats(answers[1].data.at(0).bytes()), std::vector<float>{5});
}

TEST(AsyncSlotHostedTest, AnAnswerInFlightKeepsItsBytes) {
  HostedSlotBench bench(2);
  bench.Initialise(1);
  std::vector<ps::Message> leaving;
  for (uint64_t round = 1; round <= 4; ++round) {
    bench.Do(Push(0, round, Floats({1})));
    leaving.push_back(std::move(bench.Do(Pull(0, round, 4)).at(0)));
  }
  for (size_t i = 0; i < leaving.size(); ++i) {
    EXPECT_EQ(ToFloats(leaving[i].data.at(0).bytes()),
              std::vector<float>{static_cast<float>(i + 2)});
  }
}

TEST(AsyncSlotHostedTest, AFailureIsToldAndChangesNothing) {
  HostedSlotBench bench(2);
  bench.Initialise(1);
  bench.host.fails = "ValueError: no";
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({4})));
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(TextOf(answers[0]),
                  "push key=7 push_count=1 partition=0 from worker 0: the optimizer on the server: "
                  "ValueError: no");
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{5});
}

TEST(AsyncSlotHostedTest, RatesGoToTheHostingProcessIfThePushHasAny) {
  HostedSlotBench bench(1);
  bench.Initialise(1);
  bench.Do(Push(0, 1, Floats({1})));
  EXPECT_FALSE(bench.host.rates.learning_rate.has_value());
  protocol::Call call = AsyncBench::Call(Push(0, 2, Floats({1})));
  call.request.learning_rate = 0.5;
  bench.shard().Handle(std::move(call));
  bench.Settle();
  EXPECT_EQ(bench.host.rates.learning_rate, 0.5);
}

TEST(AsyncSlotHostedTest, TheOptimizerMayChangeItsKindBetweenUpdates) {
  HostedSlotBench bench(2);
  bench.Initialise(0);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  bench.Set("sgd learning_rate=-2");
  EXPECT_EQ(bench.Settle().size(), 2u);
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{21}) << "1, then twice 10";
  bench.shard().SetOptimizer({nullptr, MakePickle()});
  bench.Do(Push(0, 2, Floats({100})));
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{121});
}

TEST(AsyncSlotHostedTest, AKeyMayNeedTheHostingProcessWhateverTheOptimizer) {
  HostedSlotBench bench(1);
  bench.shard().SetOptimizer({AsyncBench::Native("sgd learning_rate=-2"), MakePickle()});
  bench.Initialise(0, "a", true);
  bench.Do(Push(0, 1, Floats({3})));
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{3});
  bench.Set("sgd learning_rate=-2");
  EXPECT_THAT(TextOf(bench.Do(Push(0, 2, Floats({3}))).at(0)), HasSubstr("without its pickle"));
}

TEST(AsyncSlotHostedTest, AKeyThatNoOptimizerCanUpdateIsRefused) {
  HostedSlotBench cut(1);
  cut.Initialise(0, "");
  EXPECT_THAT(TextOf(cut.Do(Push(0, 1, Floats({3}))).at(0)),
              HasSubstr("call set_optimizer before the key is initialised"));
  HostedSlotBench alone(1, false);
  alone.Initialise(0);
  EXPECT_THAT(TextOf(alone.Do(Push(0, 1, Floats({3}))).at(0)),
              HasSubstr("the server is not run by Python"));
  HostedSlotBench talkative(1);
  protocol::Call call = AsyncBench::Call(Push(0, 0, Floats({0})));
  call.request.about = std::string(1025, 'x');
  talkative.shard().Handle(std::move(call));
  EXPECT_THAT(TextOf(talkative.outbox.Next()), HasSubstr("at most 1024 are kept"));
}

TEST(AsyncSlotHostedTest, AFailedJobBeginsNoMoreUpdates) {
  HostedSlotBench bench(2);
  bench.Initialise(0);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({1})));
  bench.shard().Fail(Status::Unavailable("lost worker 1"));
  const std::vector<ps::Message> answers = bench.Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(TextOf(answers[0]), "lost worker 1");
  EXPECT_EQ(bench.host.abouts.size(), 1u) << "the one that had begun";
}

}  // namespace
}  // namespace bs::server
