#include "server/sync/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "server/bench.h"

namespace bs::server {
namespace {

std::vector<float> SumOf(const ps::Message& pulled) { return ToFloats(pulled.data.at(0).bytes()); }

std::vector<int> Contribution(int32_t rank, uint64_t round, size_t count) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int>((i * 3 + static_cast<size_t>(rank) * 5 + round * 7) % 30);
  }
  return values;
}

struct SumCase {
  DType dtype;
  int32_t num_workers;
};
class SlotSumTest : public testing::TestWithParam<SumCase> {};

TEST_P(SlotSumTest, IsRightForAnyOrderOfArrivalInEveryRound) {
  const auto [dtype, num_workers] = GetParam();
  struct Case {
    uint64_t hold_bytes;
    size_t count;
    uint64_t adopted_bytes = UINT64_MAX;
  };
  const uint64_t hold = uint64_t{1} << 20;
  for (const auto& [hold_bytes, count, adopted_bytes] :
       {Case{0, 37}, Case{hold, 37}, Case{0, 1}, Case{hold, 1}, Case{0, 37, 1},
        Case{hold, 37, 1}}) {
    std::vector<int32_t> order(static_cast<size_t>(num_workers));
    std::iota(order.begin(), order.end(), 0);
    SlotBench bench({.num_workers = num_workers, .deterministic = false, .hold_bytes = hold_bytes});
    bench.state.adopted_bytes = adopted_bytes;
    Ask init = Push(0, 0, Encode(dtype, Contribution(0, 0, count)));
    init.dtype = dtype;
    const uint64_t size_bytes = init.payload.size();
    const std::vector<std::byte> initial = init.payload;
    bench.DoOk(init);
    EXPECT_EQ(ToBytes(bench.PullNow(num_workers - 1, 0, size_bytes).data.at(0)), initial);
    uint64_t round = 1;
    do {
      std::vector<int> expected(count, 0);
      for (const int32_t rank : order) {
        const std::vector<int> values = Contribution(rank, round, count);
        for (size_t i = 0; i < count; ++i) expected[i] += values[i];
        Ask push = Push(rank, round, Encode(dtype, values));
        push.dtype = dtype;
        bench.DoOk(push);
      }
      EXPECT_EQ(ToBytes(bench.PullNow(0, round, size_bytes).data.at(0)), Encode(dtype, expected))
          << NameOf(dtype) << " round " << round;
      EXPECT_EQ(bench.state.early_bytes, 0u);
      ++round;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

std::vector<SumCase> AllSumCases() {
  std::vector<SumCase> cases;
  for (const DType dtype : kAllDTypes) {
    for (int32_t num_workers = 1; num_workers <= 4; ++num_workers) {
      cases.push_back({dtype, num_workers});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(AllTypesAndWorkers, SlotSumTest, testing::ValuesIn(AllSumCases()));

// Summed by rank: ((1e8 + 1) - 1e8) + 1 = 1, because 1e8 + 1 rounds to 1e8.  Other orders give 0
// or 2.
constexpr float kOrderMatters[] = {1e8f, 1, -1e8f, 1};

float SumInOrder(SlotBench* bench, uint64_t round, const std::vector<int32_t>& order) {
  for (const int32_t rank : order) {
    bench->DoOk(Push(rank, round, Floats({kOrderMatters[rank]})));
  }
  return SumOf(bench->PullNow(0, round, 4)).at(0);
}

TEST(SlotTest, ASumBeginsInTheMemoryOfTheFirstPushThatOwnsIt) {
  struct Case {
    uint64_t adopted_bytes;
    bool owned;
    bool adopts;
  };
  for (const auto& [adopted_bytes, owned, adopts] :
       {Case{8, true, true}, Case{9, true, false}, Case{8, false, false}}) {
    SlotBench bench(2);
    bench.state.adopted_bytes = adopted_bytes;
    bench.Round(0, {0, 0});
    std::vector<std::byte> bytes = Floats({1, 2});
    bool released = false;
    protocol::Call call = MakeCall(Push(1, 1, bytes));
    const auto release = [&released] { released = true; };
    call.payload = owned ? ps::Frame::Own(bytes, release) : ps::Frame::Borrow(bytes, release);
    bench.slot->Push(call);
    EXPECT_EQ(OpOf(bench.outbox.Next()), ps::Op::kPush);
    EXPECT_EQ(released, !adopts);
    bench.DoOk(Push(0, 1, Floats({10, 20})));
    const ps::Message answer = bench.PullNow(0, 1, 8);
    EXPECT_EQ(SumOf(answer), (std::vector<float>{11, 22}));
    EXPECT_EQ(answer.data.at(0).bytes().data() == bytes.data(), adopts);
    EXPECT_EQ(bench.slot->kept_bytes(), 16u) << "of two rounds";
    bench.Round(2, {5, 5});
    bench.Round(3, {6, 6});
    EXPECT_EQ(SumOf(bench.PullNow(1, 3, 8)), (std::vector<float>{12, 12}));
    EXPECT_EQ(SumOf(answer), (std::vector<float>{11, 22})) << "it is still leaving";
  }
}

TEST(SlotTest, CodesAreNoSum) {
  SlotBench bench(1);
  bench.state.adopted_bytes = 1;
  bench.Round(0, {0});
  // The codes of one element take as many bytes as it does.
  bench.DoOk(PushTwoBit(0, 1, 0.5F, 1, Floats({0})));
  EXPECT_EQ(SumOf(bench.PullNow(0, 1, 4)), std::vector<float>{0});
  bench.DoOk(PushTwoBit(0, 2, 0.5F, 1, {std::byte{0xc0}, {}, {}, {}}));
  EXPECT_EQ(SumOf(bench.PullNow(0, 2, 4)), std::vector<float>{0.5F});
}

TEST(SlotTest, DeterministicSumsGoByRankWhateverArrivesFirst) {
  SlotBench bench(4);
  bench.Round(0, {0});
  std::vector<int32_t> order = {0, 1, 2, 3};
  uint64_t round = 1;
  do {
    EXPECT_EQ(SumInOrder(&bench, round++, order), 1);
  } while (std::next_permutation(order.begin(), order.end()));
}

Ask HostPush(int32_t rank, uint64_t round, uint32_t workers, const std::vector<float>& values) {
  Ask ask = Push(rank, round, Floats(values));
  ask.stands_for = workers;
  return ask;
}

// Any worker of a host may send for it.  Hosts are summed in the order of their lowest ranks:
// 1 + 2^24 is 2^24, and so (2^24 + -2^24) + 1 is another sum than (2^24 + 1) + -2^24.
TEST(SlotTest, OneContributionOfAHostStandsForItsWorkersInTheOrderOfHosts) {
  constexpr float kLarge = 16777216;
  struct Host {
    int32_t sender;
    uint32_t workers;
    float value;
  };
  std::vector<Host> order = {{2, 2, kLarge}, {3, 3, -kLarge}, {5, 1, 1}};
  SlotBench bench({.num_workers = 6, .hosts = {0, 1, 0, 1, 1, 2}});
  bench.Round(0, {0});
  const auto before = [](const Host& a, const Host& b) { return a.sender < b.sender; };
  uint64_t round = 1;
  do {
    for (const Host& host : order) {
      bench.DoOk(HostPush(host.sender, round, host.workers, {host.value}));
      bench.DoOk(HostPush(host.sender, round, host.workers, {host.value}));  // a repeat
    }
    EXPECT_EQ(SumOf(bench.PullNow(3, round++, 4)), std::vector<float>{1});
  } while (std::next_permutation(order.begin(), order.end(), before));
}

TEST(SlotTest, RoundWaitsForTheWorkersForWhichNoHostContributed) {
  SlotBench bench({.num_workers = 4, .hosts = {0, 0, 1, 1}});
  bench.Round(0, {0});
  bench.DoOk(HostPush(1, 1, 2, {1}));
  EXPECT_TRUE(bench.Do(Pull(1, 1, 4)).empty());
  const std::vector<ps::Message> repeat = bench.Do(Pull(1, 1, 4));
  ASSERT_EQ(repeat.size(), 1U);
  EXPECT_SNAPSHOT(repeat[0].meta.extension.text, R"(workers 2, 3 to push key 7 (round 1))");
  bench.Gone(3);
  ASSERT_EQ(bench.outbox.size(), 1U) << "worker 3 can not contribute any more";
}

TEST(SlotTest, ContributionForWorkersOfAnotherHostIsRefused) {
  SlotBench bench({.num_workers = 3, .hosts = {0, 0, 1}});
  EXPECT_EQ(bench.Refused(HostPush(0, 0, 2, {1})).first, StatusCode::kInvalidArgument);
  bench.Round(0, {0});
  EXPECT_SNAPSHOT(
      bench.Refused(HostPush(2, 1, 2, {1})).second,
      R"(push key=7 round=1 partition=0 from worker 2: it stands for 2 workers, and its host has 1; initial values and gradients in two bits are sent by each worker alone)");
  bench.DoOk(HostPush(1, 1, 2, {1}));
  bench.DoOk(HostPush(2, 1, 1, {1}));
  EXPECT_EQ(SumOf(bench.PullNow(0, 1, 4)), std::vector<float>{2});
}

// All but rank 0 come early, in any order, and are summed at once: with the bits of one after the
// other.  In float16 every partial sum is rounded: 2048 + 1 is 2048.
TEST(SlotTest, HeldPushesAreSummedAtOnceWithTheBitsOfOneAfterTheOther) {
  constexpr int32_t kWorkers = 9;
  const auto halves = [](uint16_t value) {
    std::vector<std::byte> bytes(37 * sizeof(value));
    for (size_t i = 0; i < bytes.size(); i += sizeof(value)) {
      std::memcpy(&bytes[i], &value, sizeof(value));
    }
    return bytes;
  };
  const auto push = [&](SlotBench* bench, int32_t rank, uint64_t round, uint16_t value) {
    Ask ask = Push(rank, round, halves(value));
    ask.dtype = DType::kFloat16;
    bench->DoOk(ask);
  };
  constexpr uint16_t kMany = 0x6800;  // 2048
  constexpr uint16_t kOne = 0x3c00;
  SlotBench bench(kWorkers);
  push(&bench, 0, 0, 0);
  for (const int32_t last : {0, 1, 5}) {
    const uint64_t round = last == 0 ? 1 : (last == 1 ? 2 : 3);
    for (int32_t rank = kWorkers - 1; rank >= 0; --rank) {
      if (rank != last) push(&bench, rank, round, rank == 0 ? kMany : kOne);
    }
    EXPECT_EQ(bench.state.early_bytes,
              static_cast<uint64_t>(kWorkers - 1 - last) * halves(0).size());
    push(&bench, last, round, last == 0 ? kMany : kOne);
    EXPECT_EQ(bench.state.early_bytes, 0u);
    EXPECT_EQ(ToBytes(bench.PullNow(0, round, halves(0).size()).data.at(0)), halves(kMany))
        << "the last was rank " << last;
  }
}

TEST(SlotTest, SumsGoByRankWhileTheHoldBudgetAllowsIt) {
  SlotBench bench({.num_workers = 4, .deterministic = false, .hold_bytes = 12});
  bench.Round(0, {0});
  EXPECT_EQ(SumInOrder(&bench, 1, {3, 2, 1, 0}), 1);
  EXPECT_EQ(bench.state.early_bytes, 0u);
}

TEST(SlotTest, BeyondTheHoldBudgetSumsGoByArrival) {
  SlotBench bench({.num_workers = 4, .deterministic = false, .hold_bytes = 0});
  bench.Round(0, {0});
  EXPECT_EQ(SumInOrder(&bench, 1, {0, 2, 1, 3}), 2) << "(1e8 - 1e8) + 1 + 1";
}

TEST(SlotTest, OnlyAPushBeyondTheHoldBudgetLosesItsPlace) {
  SlotBench bench({.num_workers = 4, .deterministic = false, .hold_bytes = 4});
  bench.Round(0, {0});
  // 3 is early, 2 is over the budget and goes first, then 0, 1 and the early 3.
  EXPECT_EQ(SumInOrder(&bench, 1, {3, 2, 0, 1}), 2) << "(-1e8 + 1e8) + 1 + 1";
  EXPECT_EQ(bench.state.early_bytes, 0u);
  EXPECT_EQ(SumInOrder(&bench, 2, {3, 0, 1, 2}), 1) << "the budget is free again";
}

TEST(SlotTest, EarlyContributionsAreHeldWithoutACopyAndGivenBack) {
  SlotBench bench(3);
  bench.Round(0, {0, 0});
  bool released = false;
  const std::vector<std::byte> bytes = Floats({1, 2});
  protocol::Call early = MakeCall(Push(2, 1, bytes));
  early.payload = ps::Frame::Borrow(bytes, [&] { released = true; });
  bench.slot->Push(early);
  EXPECT_EQ(OpOf(bench.outbox.Next()), ps::Op::kPush) << "acknowledged though others are missing";
  EXPECT_EQ(bench.state.early_bytes, 8u);
  EXPECT_FALSE(released);
  bench.DoOk(Push(0, 1, Floats({10, 20})));
  EXPECT_FALSE(released);
  bench.DoOk(Push(1, 1, Floats({100, 200})));
  EXPECT_TRUE(released);
  EXPECT_EQ(bench.state.early_bytes, 0u);
  EXPECT_EQ(SumOf(bench.PullNow(0, 1, 8)), (std::vector<float>{111, 222}));
}

TEST(SlotTest, IsSmall) {
  EXPECT_LE(sizeof(Slot), 176u) << "a server keeps one for each partition";
}

TEST(SlotTest, ManyWorkersGoThroughTheirRounds) {
  for (const int32_t num_workers : {64, 65, 130}) {
    SlotBench bench(num_workers);
    bench.Round(0, {0});
    for (uint64_t round = 1; round < 5; ++round) {
      // The lowest rank comes last: all others are early.
      for (int32_t rank = num_workers - 1; rank >= 0; --rank) {
        bench.DoOk(Push(rank, round, Floats({static_cast<float>(round)})));
      }
      EXPECT_EQ(bench.state.early_bytes, 0u);
      std::vector<ps::Message> leaving;
      for (int32_t rank = 0; rank < num_workers; ++rank) {
        leaving.push_back(bench.PullNow(rank, round, 4));
        EXPECT_EQ(SumOf(leaving.back()).at(0),
                  static_cast<float>(round) * static_cast<float>(num_workers));
      }
    }
  }
}

TEST(SlotTest, AsksForMemoryAgainAfterItHeldSomething) {
  uint64_t available_bytes = uint64_t{8} << 20U;
  SlotBench bench(3);
  bench.state.bounds.room = std::make_shared<MemoryRoom>([&] { return available_bytes; });
  const std::vector<std::byte> values(uint64_t{2} << 20U);
  Slot cut(&bench.state, SlotId{7, 0, 1}, 5);
  const auto push = [&](int32_t rank, uint64_t round) {
    Ask ask = Push(rank, round, values);
    ask.layout_version = 1;
    protocol::Call call = MakeCall(ask);
    cut.Push(call);
    return CodeOf(bench.outbox.Next());
  };
  EXPECT_EQ(push(2, 5), StatusCode::kOk);
  available_bytes = 0;
  EXPECT_EQ(push(0, 5), StatusCode::kOk) << "was promised to the one that is early";
  EXPECT_EQ(push(1, 5), StatusCode::kOk);
  EXPECT_EQ(push(2, 6), StatusCode::kResourceExhausted) << "nothing is early now";
  available_bytes = uint64_t{8} << 20U;
  EXPECT_EQ(push(2, 6), StatusCode::kOk);
}

TEST(SlotTest, TwoWorkersAreNeverHeld) {
  SlotBench bench(2);
  bench.Round(0, {0});
  bench.DoOk(Push(1, 1, Floats({4})));
  EXPECT_EQ(bench.state.early_bytes, 0u);
}

TEST(SlotTest, ARepeatedPushIsAcknowledgedAndNotSummed) {
  SlotBench bench(3);
  bench.Round(0, {5});
  for (int i = 0; i < 3; ++i) bench.DoOk(Push(0, 0, Floats({77})));
  EXPECT_EQ(SumOf(bench.PullNow(1, 0, 4)).at(0), 5);
  for (const int32_t rank : {2, 2, 0, 2, 0, 1, 1, 0, 2}) {
    EXPECT_EQ(bench.Do(Push(rank, 1, Floats({1}))).size(), 1u);
  }
  EXPECT_EQ(SumOf(bench.PullNow(1, 1, 4)).at(0), 3);
}

TEST(SlotTest, PendingPullsAreAnsweredByTheLastPushMostUrgentFirst) {
  SlotBench bench(3);
  bench.Round(0, {0});
  for (int32_t rank = 0; rank < 3; ++rank) {
    Ask pull = Pull(rank, 1, 4);
    pull.priority = rank == 1 ? 50 : -rank;
    EXPECT_TRUE(bench.Do(pull).empty());
  }
  bench.DoOk(Push(0, 1, Floats({1})));
  bench.DoOk(Push(1, 1, Floats({2})));
  const std::vector<ps::Message> answers = bench.Do(Push(2, 1, Floats({4})));
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(OpOf(answers[0]), ps::Op::kPush);
  const int32_t ranks[] = {1, 0, 2};
  const int32_t priorities[] = {50, 0, -2};
  for (size_t i = 0; i < 3; ++i) {
    const ps::Message& answer = answers[i + 1];
    EXPECT_EQ(OpOf(answer), ps::Op::kPull);
    EXPECT_EQ(RankOf(answer), ranks[i]);
    EXPECT_EQ(answer.meta.priority, priorities[i]);
    EXPECT_EQ(test::ResponseIn(answer).identity.count, 1u);
    EXPECT_EQ(test::ResponseIn(answer).size_bytes, 4u);
    EXPECT_EQ(SumOf(answer).at(0), 7);
  }
}

TEST(SlotTest, OfEqualPrioritiesEachServerAnswersAnotherWorkerFirst) {
  for (int32_t first = 0; first < 3; ++first) {
    SlotBench bench({.num_workers = 3, .server_rank = first});
    bench.Round(0, {0});
    for (const int32_t rank : {1, 0, 2}) EXPECT_TRUE(bench.Do(Pull(rank, 1, 4)).empty());
    bench.DoOk(Push(0, 1, Floats({1})));
    bench.DoOk(Push(1, 1, Floats({2})));
    const std::vector<ps::Message> answers = bench.Do(Push(2, 1, Floats({4})));
    ASSERT_EQ(answers.size(), 4u);
    for (int32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(RankOf(answers[static_cast<size_t>(i) + 1]), (first + i) % 3);
    }
  }
}

TEST(SlotTest, APushPullIsAnsweredOnceByTheSum) {
  for (const bool deterministic : {true, false}) {
    SlotBench bench({.num_workers = 3, .deterministic = deterministic});
    bench.Round(0, {0});
    EXPECT_TRUE(bench.Do(PushPull(2, 1, Floats({4}))).empty()) << "no acknowledgement";
    EXPECT_EQ(bench.Do(Push(0, 1, Floats({1}))).size(), 1U);
    const std::vector<ps::Message> answers = bench.Do(PushPull(1, 1, Floats({2})));
    ASSERT_EQ(answers.size(), 2U);
    for (const ps::Message& answer : answers) {
      EXPECT_EQ(OpOf(answer), ps::Op::kPushPull);
      EXPECT_TRUE(answer.meta.push && answer.meta.pull);
      EXPECT_EQ(SumOf(answer).at(0), 7);
    }
    EXPECT_NE(RankOf(answers[0]), RankOf(answers[1]));
    EXPECT_EQ(SumOf(bench.PullNow(0, 1, 4)).at(0), 7);
  }
}

TEST(SlotTest, ARepeatedPushPullCountsOnceAndIsToldTheMissingWorkers) {
  SlotBench bench(2);
  bench.Round(0, {0});
  Ask first = PushPull(0, 1, Floats({1}));
  first.sequence = 31;
  EXPECT_TRUE(bench.Do(first).empty());
  for (int i = 0; i < 2; ++i) {
    const std::vector<ps::Message> told = bench.Do(first);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(OpOf(told[0]), ps::Op::kPending);
    EXPECT_EQ(TextOf(told[0]), "worker 1 to push key 7 (round 1)");
  }
  // As a worker repeats it that has heard this.
  Ask again = Pull(0, 1, 4);
  again.sequence = 31;
  EXPECT_EQ(OpOf(bench.Do(again).at(0)), ps::Op::kPending);
  std::vector<ps::Message> answers = bench.Do(PushPull(1, 1, Floats({2})));
  ASSERT_EQ(answers.size(), 2U) << "one for each worker";
  for (const Ask& repeat : {first, again}) {
    answers.clear();  // they are lost
    answers = bench.Do(repeat);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(OpOf(answers[0]), repeat.op);
    EXPECT_EQ(SumOf(answers[0]).at(0), 3);
  }
}

TEST(SlotTest, APushPullIsCheckedAsAPushAndRefusedAsAPull) {
  SlotBench bench(3);
  bench.Round(0, {0});
  EXPECT_EQ(bench.Refused(PushPull(1, 1, Floats({1, 2}))).first, StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.Refused(PushPull(0, 0, Floats({1}))).first, StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.Refused(PushPull(1, 2, Floats({1}))).first, StatusCode::kFailedPrecondition);
  EXPECT_TRUE(bench.Do(PushPull(1, 1, Floats({1}))).empty());
  bench.Gone(2);
  const std::vector<ps::Message> answers = bench.outbox.All();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(RankOf(answers[0]), 1);
  EXPECT_EQ(TextOf(answers[0]), "worker 2 left");
  EXPECT_EQ(bench.Refused(PushPull(0, 1, Floats({1}))).second, "worker 2 left");
}

TEST(SlotTest, AcknowledgementsCarryThePriorityOfTheirRequest) {
  SlotBench bench(1);
  Ask push = Push(0, 0, Floats({1}));
  push.priority = 12;
  EXPECT_EQ(bench.Do(push).at(0).meta.priority, 12);
}

TEST(SlotTest, AHeldPushKeepsNoMemoryOfOtherPushes) {
  SlotBench bench(3);
  bench.Round(0, {0});
  bool released = false;
  const std::vector<std::byte> values = Floats({4, 8, 16});
  auto whole =
      std::make_shared<ps::Frame>(ps::Frame::Borrow(values, [&released] { released = true; }));
  const Ask early = Push(2, 1, Floats({8}));
  protocol::Call call = MakeCall(early);
  call.payload = ps::Frame::PartOf(whole, whole->bytes().subspan(4, 4));
  whole.reset();
  bench.slot->Push(call);
  bench.outbox.All();
  EXPECT_EQ(bench.state.early_bytes, 4U);
  EXPECT_TRUE(released);
  bench.DoOk(Push(0, 1, Floats({1})));
  bench.DoOk(Push(1, 1, Floats({2})));
  EXPECT_EQ(ToBytes(bench.PullNow(0, 1, 4).data.at(0)), Floats({11}));
}

TEST(SlotTest, ARepeatedPullIsToldTheMissingWorkers) {
  SlotBench bench(3);
  EXPECT_TRUE(bench.Do(Pull(1, 0, 4)).empty());
  EXPECT_EQ(TextOf(bench.Do(Pull(1, 0, 4)).at(0)), "worker 0 to initialise key 7");
  bench.Round(0, {0});
  bench.DoOk(Push(1, 1, Floats({0})));
  EXPECT_TRUE(bench.Do(Pull(1, 1, 4)).empty());
  const std::vector<ps::Message> pending = bench.Do(Pull(1, 1, 4));
  EXPECT_EQ(OpOf(pending.at(0)), ps::Op::kPending);
  EXPECT_EQ(TextOf(pending.at(0)), "workers 0, 2 to push key 7 (round 1)");
}

TEST(SlotTest, ARepeatedPullWithAnAnswerUnderWayGetsNoSecondCopy) {
  SlotBench bench(2);
  bench.Round(0, {1});
  {
    const ps::Message answer = bench.PullNow(0, 0, 4);
    const std::vector<ps::Message> repeat = bench.Do(Pull(0, 0, 4));
    EXPECT_EQ(OpOf(repeat.at(0)), ps::Op::kPending);
    EXPECT_TRUE(repeat.at(0).data.empty());
    EXPECT_EQ(TextOf(repeat.at(0)), "the answer, which waits for the network");
    bench.PullNow(1, 0, 4);  // another worker gets its own
  }
  EXPECT_EQ(SumOf(bench.PullNow(0, 0, 4)).at(0), 1);  // it left, and may have been lost
}

TEST(SlotTest, AnswersShowTheBufferItself) {
  SlotBench bench(2);
  bench.Round(0, {1});
  const ps::Message one = bench.PullNow(0, 0, 4);
  const ps::Message two = bench.PullNow(1, 0, 4);
  EXPECT_EQ(one.data.at(0).bytes().data(), two.data.at(0).bytes().data());
}

TEST(SlotTest, AnAnswerUnderWayKeepsItsBytesThroughTheNextRounds) {
  SlotBench bench(2);
  bench.Round(0, {1, 1});
  bench.Round(1, {10, 20});
  const ps::Message late = bench.PullNow(0, 1, 8);
  for (uint64_t round = 2; round < 6; ++round) {
    bench.Round(round, {static_cast<float>(round), 0});
    EXPECT_EQ(SumOf(late), (std::vector<float>{20, 40})) << "round " << round;
  }
  const ps::Message newer = bench.PullNow(0, 5, 8);
  EXPECT_NE(newer.data.at(0).bytes().data(), late.data.at(0).bytes().data());
}

TEST(SlotTest, EverySumButTheFirstCountsForAWorkerThatDoesNotRead) {
  SlotBench bench(2);
  bench.Round(0, {1});
  std::vector<ps::Message> leaving;
  for (uint64_t round = 0; round < 6; ++round) {
    if (round > 0) bench.Round(round, {1});
    leaving.push_back(bench.PullNow(0, round, 4));
    EXPECT_EQ(leaving.back().keeps_memory, round > 0) << "round " << round;
    // He who has read the one before is given what is there anyway.
    EXPECT_FALSE(bench.PullNow(1, round, 4).keeps_memory) << "round " << round;
  }
}

TEST(SlotTest, ABufferWithoutAnswersUnderWayIsUsedAgain) {
  SlotBench bench(2);
  bench.Round(0, {1});
  bench.Round(1, {1});
  const std::byte* const used = bench.PullNow(0, 1, 4).data.at(0).bytes().data();
  bench.Round(2, {1});
  EXPECT_NE(bench.PullNow(0, 2, 4).data.at(0).bytes().data(), used);
  bench.Round(3, {1});
  EXPECT_EQ(bench.PullNow(0, 3, 4).data.at(0).bytes().data(), used);
}

// The test of the test: decision 2 of the design taken back.
TEST(SlotTest, WithOneBufferASlowWorkerGetsAWrongSum) {
  for (const uint32_t num_buffers : {1u, 2u}) {
    SlotBench bench({.num_workers = 2, .num_buffers = num_buffers});
    bench.Round(0, {0});
    bench.Round(1, {3});
    bench.DoOk(Push(0, 2, Floats({100})));  // worker 0 has its sum and is ahead
    const std::vector<float> slow = SumOf(bench.PullNow(1, 1, 4));
    EXPECT_EQ(slow.at(0), num_buffers == 1 ? 100 : 6);
  }
}

TEST(SlotTest, AnEmptyPartitionGoesThroughItsRounds) {
  SlotBench bench(3);
  bench.DoOk(Push(0, 0, {}));
  for (const int32_t rank : {2, 1, 0}) bench.DoOk(Push(rank, 1, {}));
  const std::vector<ps::Message> answers = bench.Do(Pull(1, 1, 0));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kOk);
}

TEST(SlotTest, AnotherSizeDtypeOrOffsetIsRefusedByName) {
  SlotBench bench(2);
  bench.Round(0, {1, 2});
  auto [code, text] = bench.Refused(Push(1, 1, Floats({1})));
  EXPECT_EQ(code, StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      text,
      "push key=7 round=1 partition=0 from worker 1: it has float32 of 4 bytes at offset 0, "
      "the initial value of worker 0 has float32 of 8 bytes at offset 0");
  Ask other = Push(1, 1, Floats({1, 2}));
  other.dtype = DType::kInt32;
  EXPECT_THAT(bench.Refused(other).second, testing::HasSubstr("int32 of 8 bytes"));
  protocol::Call shifted = MakeCall(Push(1, 1, Floats({1, 2})));
  shifted.request.offset_bytes = 8;
  bench.slot->Push(shifted);
  EXPECT_EQ(CodeOf(bench.outbox.Next()), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      bench.Refused(Pull(1, 0, 4)).second,
      "pull key=7 round=0 partition=0 from worker 1: it expects 4 bytes, the partition is "
      "float32 of 8 bytes");
  EXPECT_EQ(bench.Refused(Pull(1, 1, 16)).first, StatusCode::kInvalidArgument)
      << "before the round completes, too";
  bench.Round(1, {1, 2});
  EXPECT_EQ(SumOf(bench.PullNow(0, 1, 8)), (std::vector<float>{2, 4})) << "nothing was spoilt";
}

TEST(SlotTest, APullThatCameFirstIsCheckedWhenTheSizeIsKnown) {
  SlotBench bench(2);
  EXPECT_TRUE(bench.Do(Pull(1, 0, 4)).empty());
  const std::vector<ps::Message> answers = bench.Do(Push(0, 0, Floats({1, 2})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(CodeOf(answers[1]), StatusCode::kInvalidArgument);
}

TEST(SlotTest, HostilePushesAreRefused) {
  SlotBench bench(3);
  EXPECT_SNAPSHOT(bench.Refused(Push(1, 0, Floats({1}))).second,
                  "push key=7 round=0 partition=0 from worker 1: expected round 0 from worker 0");
  EXPECT_EQ(bench.Refused(Push(0, UINT64_MAX, Floats({1}))).first, StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(
      bench.Refused(Push(0, 0, {std::byte{1}, std::byte{2}, std::byte{3}})).second,
      "push key=7 round=0 partition=0 from worker 0: float32 of 3 bytes is no whole number of "
      "elements");
  Ask unknown = Push(0, 0, Floats({1}));
  unknown.dtype = static_cast<DType>(99);
  EXPECT_SNAPSHOT(
      bench.Refused(unknown).second,
      "push key=7 round=0 partition=0 from worker 0: dtype 99 is none that a server can sum");
  protocol::Call lying = MakeCall(Push(0, 0, Floats({1})));
  lying.request.size_bytes = uint64_t{1} << 40;
  bench.slot->Push(lying);
  EXPECT_EQ(CodeOf(bench.outbox.Next()), StatusCode::kInvalidArgument);
  bench.Round(0, {1});
  EXPECT_EQ(bench.Refused(Pull(1, 2, 4)).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(SumOf(bench.PullNow(1, 0, 4)).at(0), 1) << "and the slot works";
}

TEST(SlotTest, ARoundThatAGoneWorkerLeftIncompleteIsRefusedAndTheRestIsServed) {
  SlotBench bench(3);
  bench.Round(0, {0});
  bench.Round(1, {2});
  EXPECT_TRUE(bench.Do(Pull(0, 2, 4)).empty());
  EXPECT_TRUE(bench.Do(Pull(1, 2, 4)).empty());
  bench.DoOk(Push(0, 2, Floats({1})));
  bench.Gone(1);
  const std::vector<ps::Message> answers = bench.outbox.All();
  ASSERT_EQ(answers.size(), 1u) << "the pull of worker 0; worker 1 is not there to be told";
  EXPECT_EQ(RankOf(answers[0]), 0);
  EXPECT_EQ(CodeOf(answers[0]), StatusCode::kUnavailable);
  EXPECT_EQ(TextOf(answers[0]), "worker 1 left");
  EXPECT_EQ(bench.Refused(Push(2, 2, Floats({1}))).second, "worker 1 left");
  EXPECT_EQ(bench.Refused(Pull(2, 2, 4)).second, "worker 1 left");
  bench.DoOk(Push(0, 2, Floats({1})));  // a repeat
  EXPECT_EQ(SumOf(bench.PullNow(2, 1, 4)).at(0), 6) << "a complete round is still served";
}

TEST(SlotTest, ARoundThatHasTheGoneWorkersPartCompletes) {
  SlotBench bench(2);
  bench.Round(0, {0});
  bench.DoOk(Push(1, 1, Floats({5})));
  EXPECT_TRUE(bench.Do(Pull(0, 1, 4)).empty());
  bench.Gone(1);
  EXPECT_TRUE(bench.outbox.empty());
  const std::vector<ps::Message> answers = bench.Do(Push(0, 1, Floats({6})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(SumOf(answers[1]).at(0), 11);
  EXPECT_EQ(bench.Refused(Pull(0, 2, 4)).second, "worker 1 left") << "the next one can not";
}

TEST(SlotTest, RoundZeroNeedsOnlyRankZero) {
  SlotBench bench(3);
  EXPECT_TRUE(bench.Do(Pull(1, 0, 4)).empty());
  bench.Gone(2);
  EXPECT_TRUE(bench.outbox.empty());
  bench.Gone(0);
  EXPECT_EQ(TextOf(bench.outbox.Next()), "worker 0 left");
}

TEST(SlotTest, TellsWhenEachRoundCameTogether) {
  using std::chrono::milliseconds;
  std::vector<RoundTimes> told;
  SlotBench bench(3);
  bench.state.on_round = [&told](const RoundTimes& times) { told.push_back(times); };
  bench.DoOk(Push(0, 0, Floats({1, 2})));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].round, 0u);
  const TimePoint start = bench.clock.Now();
  bench.DoOk(Push(2, 1, Floats({1, 2})));
  bench.clock.RunUntil(start + milliseconds(3));
  bench.DoOk(Push(0, 1, Floats({1, 2})));
  bench.DoOk(Push(0, 1, Floats({1, 2})));  // a repeat
  bench.clock.RunUntil(start + milliseconds(7));
  EXPECT_EQ(told.size(), 1u);
  bench.DoOk(Push(1, 1, Floats({1, 2})));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].key, 7u);
  EXPECT_EQ(told[1].partition, 0u);
  EXPECT_EQ(told[1].round, 1u);
  EXPECT_EQ(told[1].size_bytes, 8u);
  EXPECT_EQ(told[1].last_rank, 1);
  EXPECT_EQ(told[1].first_push, start);
  EXPECT_EQ(told[1].last_push, start + milliseconds(7));
  EXPECT_EQ(told[1].summed, told[1].last_push);
}

TEST(SlotTest, FailingRefusesPendingPullsAndGivesBackEarlyPushes) {
  SlotBench bench(3);
  bench.Round(0, {0});
  bench.DoOk(Push(2, 1, Floats({1})));
  EXPECT_TRUE(bench.Do(Pull(2, 1, 4)).empty());
  EXPECT_EQ(bench.state.early_bytes, 4u);
  bench.slot->Fail(Status::Unavailable("lost server 1"));
  EXPECT_EQ(TextOf(bench.outbox.Next()), "lost server 1");
  EXPECT_EQ(bench.state.early_bytes, 0u);
}

}  // namespace
}  // namespace bs::server
