// Asynchronous partitions whose updates the hosting process makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "server/async_slot.h"
#include "server/shard.h"
#include "server/support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

// A shard and a hosting process that adds gradients to weights.
class Bench {
 public:
  explicit Bench(int32_t num_workers, bool hosts = true) {
    ServerUpdater updater;
    if (hosts) updater.executor = &updater_;
    updater.set_optimizer = [](std::string_view) { return Status::Ok(); };
    updater.update = [this](const ServerUpdate& update) { return Update(update); };
    ShardState state;
    state.num_workers = num_workers;
    state.send = outbox_.sender();
    state.executor = &executor_;
    state.hosted = std::make_shared<HostedUpdates>(std::move(updater));
    shard_.emplace(std::move(state));
    shard_->SetOptimizer({nullptr, Pickle()});
  }

  static HostedUpdates::Optimizer Pickle() {
    return std::make_shared<const HostedOptimizer>(HostedOptimizer{"p"});
  }
  static std::shared_ptr<const OptimizerSpec> Native() {
    return std::make_shared<const OptimizerSpec>(ParseOptimizer("sgd learning_rate=-2").value());
  }
  // What has no `about` is of a key that is cut.
  void Initialise(float value, const std::string& about = "a", bool needs_host = false) {
    ps::KvCall call = Call(Push(0, 0, Floats({value})));
    call.extension.text = about;
    call.extension.hosted = needs_host;
    shard_->Handle(std::move(call));
    EXPECT_EQ(CodeOf(outbox_.Next()), StatusCode::kOk);
  }
  void Post(const Ask& ask) { shard_->Handle(Call(ask)); }
  std::vector<ps::Message> Run() {
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    return outbox_.All();
  }
  std::vector<ps::Message> Do(const Ask& ask) {
    Post(ask);
    return Run();
  }
  std::vector<float> PullNow(int32_t rank, uint64_t round) {
    Ask ask = Pull(rank, round, 4);
    ask.sequence = next_sequence_++;
    Post(ask);
    const std::vector<ps::Message> answers = outbox_.All();
    EXPECT_EQ(answers.size(), 1u);
    if (answers.empty() || answers[0].data.empty()) return {};
    return ToFloats(answers[0].data[0].bytes());
  }
  Shard& shard() { return *shard_; }
  Outbox& outbox() { return outbox_; }

  std::string fails;  // the next update, if not empty
  std::vector<std::string> abouts;
  PushRates rates;  // of the latest update

 private:
  static ps::KvCall Call(Ask ask) {
    ask.mode = Mode::kAsynchronous;
    return MakeCall(ask);
  }
  Status Update(const ServerUpdate& update) {
    abouts.emplace_back(update.about);
    rates = update.rates;
    auto* const weight = reinterpret_cast<float*>(update.weights.data());
    *weight += ToFloats(update.gradient)[0];
    return fails.empty() ? Status::Ok() : Status::Internal(std::exchange(fails, ""));
  }

  sim::SimClock clock_{1};
  sim::SimExecutor updater_{&clock_};
  sim::SimExecutor executor_{&clock_};
  Outbox outbox_;
  std::optional<Shard> shard_;
  uint64_t next_sequence_ = 5000;
};

TEST(AsyncSlotHostedTest, TheProcessGetsWhatCodesStandFor) {
  Bench bench(2);
  bench.Initialise(10);
  bench.Post(Push(1, 1, Floats({1})));
  bench.Post(PushTwoBit(0, 1, 0.5F, 1, std::vector<std::byte>{std::byte{0b11000000}, {}, {}, {}}));
  EXPECT_EQ(bench.Run().size(), 2u) << "one waited for the other";
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{11.5F});
}

TEST(AsyncSlotHostedTest, PushesOfAllAreAppliedOnceOneAfterTheOther) {
  Bench bench(3);
  bench.Initialise(10);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  bench.Post(Push(2, 1, Floats({100})));
  EXPECT_TRUE(bench.outbox().empty()) << "none is in the weights yet";
  EXPECT_EQ(bench.PullNow(0, 0), std::vector<float>{10});
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  for (const ps::Message& repeat : bench.outbox().All()) {
    EXPECT_EQ(OpOf(repeat), ps::Op::kPending);
    EXPECT_EQ(TextOf(repeat), "the server to finish an earlier update of key 7");
  }
  const std::vector<ps::Message> answers = bench.Run();
  ASSERT_EQ(answers.size(), 3u);
  for (const ps::Message& answer : answers) EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(Push(1, 1, Floats({10}))).at(0)), StatusCode::kOk) << "a repeat";
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{121});
  EXPECT_EQ(bench.abouts, (std::vector<std::string>{"a", "a", "a"}));
}

TEST(AsyncSlotHostedTest, APullWaitsForItsOwnPush) {
  Bench bench(2);
  bench.Initialise(0);
  bench.Post(Push(1, 1, Floats({5})));
  bench.Post(Pull(1, 1, 4));
  EXPECT_TRUE(bench.outbox().empty());
  const std::vector<ps::Message> answers = bench.Run();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(ToFloats(answers[1].data.at(0).bytes()), std::vector<float>{5});
}

TEST(AsyncSlotHostedTest, AnAnswerInFlightKeepsItsBytes) {
  Bench bench(2);
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
  Bench bench(2);
  bench.Initialise(1);
  bench.fails = "ValueError: no";
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({4})));
  const std::vector<ps::Message> answers = bench.Run();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kFailedPrecondition);
  EXPECT_EQ(TextOf(answers[0]),
            "push key=7 round=1 partition=0 from worker 0: the optimizer on the server: "
            "ValueError: no");
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kOk);
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{5});
}

TEST(AsyncSlotHostedTest, RatesGoToTheHostingProcessIfThePushHasAny) {
  Bench bench(1);
  bench.Initialise(1);
  bench.Do(Push(0, 1, Floats({1})));
  EXPECT_FALSE(bench.rates.learning_rate.has_value());
  ps::KvCall call = MakeCall(Push(0, 2, Floats({1})));
  call.extension.mode = static_cast<uint32_t>(Mode::kAsynchronous);
  call.extension.learning_rate = 0.5;
  bench.shard().Handle(std::move(call));
  bench.Run();
  EXPECT_EQ(bench.rates.learning_rate, 0.5);
}

TEST(AsyncSlotHostedTest, TheOptimizerMayChangeItsKindBetweenUpdates) {
  Bench bench(2);
  bench.Initialise(0);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({10})));
  bench.shard().SetOptimizer({Bench::Native(), nullptr});
  EXPECT_EQ(bench.Run().size(), 2u);
  EXPECT_EQ(bench.PullNow(1, 1), std::vector<float>{21}) << "1, then twice 10";
  bench.shard().SetOptimizer({nullptr, Bench::Pickle()});
  bench.Do(Push(0, 2, Floats({100})));
  EXPECT_EQ(bench.PullNow(0, 2), std::vector<float>{121});
}

TEST(AsyncSlotHostedTest, AKeyMayNeedTheHostingProcessWhateverTheOptimizer) {
  Bench bench(1);
  bench.shard().SetOptimizer({Bench::Native(), Bench::Pickle()});
  bench.Initialise(0, "a", true);
  bench.Do(Push(0, 1, Floats({3})));
  EXPECT_EQ(bench.PullNow(0, 1), std::vector<float>{3});
  bench.shard().SetOptimizer({Bench::Native(), nullptr});
  EXPECT_THAT(TextOf(bench.Do(Push(0, 2, Floats({3}))).at(0)), HasSubstr("without its pickle"));
}

TEST(AsyncSlotHostedTest, WhatNobodyCanUpdateIsRefused) {
  Bench cut(1);
  cut.Initialise(0, "");
  EXPECT_THAT(TextOf(cut.Do(Push(0, 1, Floats({3}))).at(0)),
              HasSubstr("call set_optimizer before the key is initialised"));
  Bench alone(1, false);
  alone.Initialise(0);
  EXPECT_THAT(TextOf(alone.Do(Push(0, 1, Floats({3}))).at(0)),
              HasSubstr("the server is not run by Python"));
  Bench talkative(1);
  ps::KvCall call = MakeCall(Push(0, 0, Floats({0})));
  call.extension.mode = static_cast<uint32_t>(Mode::kAsynchronous);
  call.extension.text = std::string(1025, 'x');
  talkative.shard().Handle(std::move(call));
  EXPECT_THAT(TextOf(talkative.outbox().Next()), HasSubstr("at most 1024 are kept"));
}

TEST(AsyncSlotHostedTest, AFailedJobBeginsNoMoreUpdates) {
  Bench bench(2);
  bench.Initialise(0);
  bench.Post(Push(0, 1, Floats({1})));
  bench.Post(Push(1, 1, Floats({1})));
  bench.shard().Fail(Status::Unavailable("lost worker 1"));
  const std::vector<ps::Message> answers = bench.Run();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(TextOf(answers[0]), "lost worker 1");
  EXPECT_EQ(bench.abouts.size(), 1u) << "the one that had begun";
}

}  // namespace
}  // namespace bs::server
