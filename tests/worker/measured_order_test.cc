// MeasuredOrder: what is learned is shared, counts on the wire, and harms nobody if it is not.
#include "worker/measured_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "protocol/bodies.h"
#include "protocol/placement.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSteps = 5;  // as many as are needed
constexpr Duration kApart = std::chrono::milliseconds(1);
constexpr std::array<Key, 3> kCalls = {3, 1, 2};  // with the priorities -3, -1, -2
constexpr std::array<Key, 3> kReady = {2, 1, 3};  // so 3 is needed first
std::map<Key, Priority> Callers() { return {{1, -1}, {2, -2}, {3, -3}}; }
std::map<Key, Priority> Measured() { return {{3, -1}, {1, -2}, {2, -3}}; }

using test::About;

PsWorkerOptions Options(int32_t rank, int32_t num_workers, Urgency urgency = Urgency::kMeasured) {
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = rank}, num_workers, 1));
  options.partition_bytes = 64;
  options.early_bytes = 0;  // each partition has its tensor's number
  options.urgency = urgency;
  return options;
}

// A worker with three keys, and a test that plays its server.
class Training {
 public:
  explicit Training(const PsWorkerOptions& options) : bench_(options) {
    for (const Key key : kCalls) {
      const Outcome* const done = bench_.Broadcast(key, DType::kFloat32, value_);
      if (options.view().own.rank > 0) {
        AnswerLookup(bench_.Next());
        bench_.Answer(bench_.Next(), value_);
      }
      bench_.Run();
      while (!bench_.sent.empty()) bench_.Answer(bench_.Next());
      EXPECT_TRUE(done->ok()) << done->text();
    }
  }

  Bench* bench() { return &bench_; }
  void AnswerLookup(ps::Message lookup) {
    EXPECT_EQ(About(lookup).op, ps::Op::kLookup);
    const uint64_t parts = std::max<uint64_t>(1, (About(lookup).tensor_bytes + 63) / 64);
    bench_.AnswerLookup(std::move(lookup), 64, Bytes(2 * parts, 0));
  }
  // One step; returns the priority with which each key was pushed.  What does not belong to it
  // stays in `beside`.
  std::map<Key, Priority> Step() {
    for (const Key key : kReady) {
      busy ? bench_.Skip(kApart) : bench_.RunFor(kApart);
      bench_.worker()->PushPull(
          key, {.priority = Callers().at(key), .called = called_ + Turn(key)}, in_,
          outs_.at(key - 1), [this](const Status& status) { CountOk(status); },
          [this](const Status& status) { CountOk(status); });
    }
    called_ += kCalls.size();
    bench_.Run();
    std::map<Key, Priority> priorities;
    while (!bench_.sent.empty()) {
      ps::Message message = bench_.Next();
      const Key key = About(message).key;
      if (key > kCalls.size()) {
        beside.push_back(std::move(message));
        continue;
      }
      const bool push = About(message).op == ps::Op::kPush;
      if (push) priorities[key] = message.meta.priority;
      bench_.Answer(std::move(message), push ? std::vector<std::byte>() : value_);
    }
    return priorities;
  }
  void Learn() {
    for (int i = 0; i < kSteps - 1; ++i) EXPECT_EQ(Step(), Callers());
    Step();  // its last push may have the new number
  }
  // The request that stands beside the steps.
  ps::Message Next() {
    bench_.Run();
    if (beside.empty()) return bench_.Next();
    ps::Message message = std::move(beside.front());
    beside.pop_front();
    return message;
  }
  int good() const { return good_; }

  std::deque<ps::Message> beside;
  bool busy = false;  // the worker's thread gets to all calls of a step together

 private:
  // Among the calls of a step, from 1.
  static uint64_t Turn(Key key) {
    return static_cast<uint64_t>(std::find(kCalls.begin(), kCalls.end(), key) - kCalls.begin()) + 1;
  }
  void CountOk(const Status& status) { good_ += status.ok() ? 1 : 0; }

  std::vector<std::byte> value_ = Bytes(4, 0);
  const std::vector<std::byte> in_ = Bytes(4, 1);
  std::array<std::vector<std::byte>, 3> outs_ = {Bytes(4, 0), Bytes(4, 0), Bytes(4, 0)};
  uint64_t called_ = 0;
  int good_ = 0;
  Bench bench_;
};

TEST(MeasuredOrder, NumbersOfASingleWorkerReachTheWire) {
  Training training(Options(0, 1));
  training.Learn();
  EXPECT_EQ(training.Step(), Measured());
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, TheTimesOfTheCallsCountEvenIfTheThreadIsBusy) {
  Training training(Options(0, 1));
  training.busy = true;
  training.Learn();
  EXPECT_EQ(training.Step(), Measured());
}

TEST(MeasuredOrder, TheCallersOrderStaysWhereItIsSet) {
  Training training(Options(0, 1, Urgency::kCaller));
  training.Learn();
  EXPECT_EQ(training.Step(), Callers());
}

TEST(MeasuredOrder, NothingIsLearnedOfWorkersThatSendInTheOrderOfReadiness) {
  PsWorkerOptions options = Options(0, 2);
  options.priority_order = false;
  Training training(options);
  training.Learn();
  EXPECT_EQ(training.Step(), Callers());
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, AWorkerThatMeasuresAloneTellsNoWorker) {
  Training training(Options(1, 2, Urgency::kMeasuredAlone));
  training.Learn();
  EXPECT_EQ(training.Step(), Measured());
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, CallsThatDoNotSayTheirPlaceAreNotNoted) {
  Bench bench(Options(0, 1));
  std::vector<std::byte> value = Bytes(4, 0);
  const std::vector<std::byte> in = Bytes(4, 1);
  std::vector<std::byte> out = Bytes(4, 0);
  for (const Key key : kCalls) bench.Initialise(key, value);
  for (int i = 0; i < 2 * kSteps; ++i) {
    for (const Key key : kReady) {
      bench.PushPull(key, Callers().at(key), in, out);
      ps::Message push = bench.Next();
      EXPECT_EQ(push.meta.priority, Callers().at(key));
      bench.Answer(std::move(push));
      bench.Answer(bench.Next(), value);
    }
  }
}

// Plays the servers to rank 0, which publishes a value under `key`; returns the value.
std::vector<std::byte> TakePublished(Training* training, Key key) {
  ps::Message declare = training->Next();
  EXPECT_EQ(About(declare).op, ps::Op::kDeclare);
  EXPECT_EQ(About(declare).key, key);
  training->bench()->Answer(std::move(declare));
  ps::Message push = training->Next();
  EXPECT_EQ(About(push).op, ps::Op::kPush);
  EXPECT_EQ(About(push).key, key);
  EXPECT_EQ(About(push).round, 0U);
  const std::span<const std::byte> bytes = push.data.at(0).bytes();
  std::vector<std::byte> value(bytes.begin(), bytes.end());
  training->bench()->Answer(std::move(push));
  return value;
}

TEST(MeasuredOrder, RankZeroPublishesAndTheNumbersCountFromThenOn) {
  Training training(Options(0, 2));
  training.Learn();
  EXPECT_EQ(training.Step(), Callers());
  EXPECT_EQ(DecodeCount(TakePublished(&training, kOrderHeaderKey)), 3U);
  EXPECT_EQ(training.Step(), Callers()) << "before everything is published";
  std::map<Key, Priority> told;
  for (const core::Renumbered& number : DecodeNumbers(TakePublished(&training, kOrderKey))) {
    EXPECT_EQ(number.callers, Callers().at(number.key));
    told[number.key] = number.measured;
  }
  EXPECT_EQ(told, Measured());
  EXPECT_EQ(training.Step(), Measured());
  EXPECT_THAT(training.beside, IsEmpty());
}

// Plays the servers to a worker of rank 1 that looks up `numbers`.
void Tell(Training* training, const MeasuredOrder::Numbers& numbers) {
  ps::Message lookup = training->Next();
  EXPECT_EQ(About(lookup).key, kOrderHeaderKey);
  training->AnswerLookup(std::move(lookup));
  training->bench()->Answer(training->Next(), EncodeCount(numbers.size()));
  if (numbers.empty()) return;
  lookup = training->Next();
  EXPECT_EQ(About(lookup).key, kOrderKey);
  EXPECT_EQ(About(lookup).tensor_bytes, Encode(numbers).size());
  training->AnswerLookup(std::move(lookup));
  training->bench()->Answer(training->Next(), Encode(numbers));
}

TEST(MeasuredOrder, OtherWorkersTakeTheNumbersOfRankZeroWhateverTheyHaveSeen) {
  Training training(Options(1, 2));
  training.Learn();
  // Key 9 is not known here, and of key 2 rank 0's caller said something else.
  Tell(&training, {{.key = 1, .callers = -1, .measured = 5},
                   {.key = 2, .callers = -7, .measured = 6},
                   {.key = 9, .callers = 0, .measured = 7}});
  EXPECT_EQ(training.Step(), (std::map<Key, Priority>{{1, 5}, {2, -2}, {3, -3}}));
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, OtherWorkersKeepTheCallersNumbersIfRankZeroDoes) {
  Training training(Options(1, 2));
  training.Learn();
  Tell(&training, {});
  EXPECT_EQ(training.Step(), Callers());
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, CountThatCannotBeIsNotBelieved) {
  Training training(Options(1, 2));
  training.Learn();
  training.AnswerLookup(training.Next());
  training.bench()->Answer(training.Next(), EncodeCount(UINT64_MAX));
  EXPECT_EQ(training.Step(), Callers());
  EXPECT_THAT(training.beside, IsEmpty());
}

TEST(MeasuredOrder, RefusalFailsNothing) {
  for (const int32_t rank : {0, 1}) {
    Training training(Options(rank, 2));
    training.Learn();
    training.bench()->Refuse(training.Next(), Status::DeadlineExceeded("nobody there"));
    EXPECT_EQ(training.Step(), Callers());
    EXPECT_EQ(training.good(), 2 * 3 * (kSteps + 1));
    EXPECT_THAT(training.bench()->failures, IsEmpty());
  }
}

// The bench's destructor expects that the worker closes.
TEST(MeasuredOrder, WorkerClosesWhileRankZeroHasPublishedNothing) {
  Training training(Options(1, 2));
  training.Learn();
  EXPECT_EQ(training.Step(), Callers());
  EXPECT_EQ(training.beside.size(), 1U);
}

TEST(MeasuredOrder, ItsOwnKeysAreRefusedToCallers) {
  Bench bench(Options(0, 1));
  std::vector<std::byte> value = Bytes(4, 0);
  for (const Key key : {kOrderHeaderKey, kOrderKey}) {
    const Outcome* const refused = bench.Broadcast(key, DType::kFloat32, value);
    bench.Run();
    EXPECT_EQ(refused->code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused->text(), HasSubstr("the engine's own"));
  }
  bench.Initialise(kOrderHeaderKey - 1, value);
}

// What is said when a lesson of `calls`, which become ready as `ready` says, ends.
std::vector<std::string> Said(const std::vector<Key>& calls, const std::vector<Key>& ready) {
  std::vector<std::string> lines;
  const Logger log("", LogLevel::kInfo,
                   [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  MeasuredOrder order(OperationContext(), {.alone = true}, log);
  uint64_t called = 0;
  TimePoint now{};
  bool enough = false;
  while (!enough) {
    for (const Key key : ready) {
      const auto turn = std::find(calls.begin(), calls.end(), key) - calls.begin();
      now += std::chrono::milliseconds(1);
      enough = order.Note({.key = key,
                           .priority = -static_cast<Priority>(key),
                           .called = called + static_cast<uint64_t>(turn) + 1},
                          now) ||
               enough;
    }
    called += calls.size();
  }
  order.Settle([](const MeasuredOrder::Numbers&) {});
  return lines;
}

TEST(MeasuredOrder, OneLineSaysThatPrioritiesWereWrongAndNoneThatTheyAreRight) {
  EXPECT_THAT(Said({3, 1, 2}, {2, 1, 3}), ::testing::ElementsAre(HasSubstr("1 of 3 tensors move")));
  EXPECT_THAT(Said({1, 2, 3}, {3, 2, 1}), IsEmpty());
  EXPECT_THAT(Said({1, 2, 3}, {1, 2, 3}), IsEmpty());
}

TEST(MeasuredOrder, NumbersComeOutAsTheyWentIn) {
  const MeasuredOrder::Numbers numbers = {
      {.key = 0, .callers = INT32_MIN, .measured = INT32_MAX},
      {.key = UINT64_MAX - 2, .callers = -1, .measured = 0x01020304}};
  EXPECT_EQ(DecodeNumbers(Encode(numbers)), numbers);
  EXPECT_EQ(DecodeCount(EncodeCount(17)), 17U);
  EXPECT_EQ(DecodeCount(EncodeCount(core::ReadyOrder::kMostNotes + 1)), std::nullopt);
  EXPECT_EQ(EncodeCount(0x0102).at(0), std::byte{2});
}

}  // namespace
}  // namespace bs::worker
