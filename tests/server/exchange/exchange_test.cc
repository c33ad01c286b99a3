// Exchanges on a server: what takers get, when memory goes, and which requests are refused.
#include "server/exchange/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "protocol/exchange_terms.h"
#include "server/bench.h"
#include "server/exchange/ended_exchanges.h"
#include "server/exchange/exchanges.h"

namespace bs::server {
namespace {

using protocol::ExchangeTerms;

ExchangeTerms SumOfTwo() {
  return {.size_bytes = 8,
          .partition_bytes = 64,
          .givers = {0, 1},
          .takers = {0, 1},
          .label = "gradients"};
}

class ExchangeTest : public testing::Test {
 protected:
  static ServerOptions Options(int32_t num_workers, bool deterministic = false) {
    ServerOptions options;
    options.view = job::ShareView({.role = job::Role::kServer}, num_workers, 1);
    options.deterministic = deterministic;
    options.adopted_bytes = 1;
    return options;
  }
  ps::Message Make(ps::Op op, int32_t rank, const ExchangeTerms& terms, uint32_t partition,
                   std::vector<std::byte> payload) {
    ps::Message message = MakeRequest({.op = op,
                                       .rank = rank,
                                       .partition = partition,
                                       .sequence = ++sequence_,
                                       .payload = std::move(payload)});
    test::ChangeRequest(&message, [&](protocol::DataRequest* body) {
      const Partition cut = protocol::PartitionOf(terms, partition);
      body->key = key_;
      body->offset_bytes = cut.offset_bytes;
      body->size_bytes = cut.size_bytes;
      body->terms = protocol::Encode(terms);
      if (!notes_answers_) return;
      body->answered_below = sequence_;
    });
    return message;
  }
  // Exchanges that end, each with a key of its own.
  void EndMany(int count) {
    const Key key = key_;
    for (key_ = 1'000'000; key_ < static_cast<Key>(1'000'000 + count); ++key_) {
      for (const int32_t rank : {0, 1}) Give(rank, SumOfTwo(), {1, 2});
      for (const int32_t rank : {0, 1}) Taken(rank);
    }
    key_ = key;
  }
  std::vector<ps::Message> Give(int32_t rank, const ExchangeTerms& terms,
                                const std::vector<float>& values, uint32_t partition = 0) {
    return bench_.Do(Make(ps::Op::kGive, rank, terms, partition, Floats(values)));
  }
  std::vector<ps::Message> Take(int32_t rank, const ExchangeTerms& terms, uint32_t partition = 0) {
    return bench_.Do(Make(ps::Op::kTake, rank, terms, partition, {}));
  }
  std::vector<ps::Message> Taken(int32_t rank, uint32_t partition = 0) {
    ps::Message message =
        MakeRequest({.op = ps::Op::kTaken, .rank = rank, .sequence = ++sequence_});
    const protocol::TakenPartition taken{.key = key_, .partition = partition};
    test::ChangeRequest(&message, [&](protocol::DataRequest* body) {
      body->taken = protocol::Encode(std::span(&taken, 1));
    });
    return bench_.Do(std::move(message));
  }
  std::vector<ps::Message> Quit(int32_t rank, StatusCode code, const std::string& why,
                                const ExchangeTerms& terms = SumOfTwo()) {
    ps::Message message =
        MakeRequest({.op = ps::Op::kQuit, .rank = rank, .key = key_, .sequence = ++sequence_});
    test::ChangeRequest(
        &message, [&](protocol::DataRequest* body) { body->terms = protocol::Encode(terms); });
    message.meta.extension.status = static_cast<uint32_t>(code);
    message.meta.extension.text = why;
    return bench_.Do(std::move(message));
  }
  // "to 0: ok [3, 4]; to 1: kInvalidArgument: why".
  static std::string TextOfAll(const std::vector<ps::Message>& messages) {
    std::string text;
    for (const ps::Message& message : messages) {
      if (!text.empty()) text += "; ";
      text += "to " + std::to_string(RankOf(message)) + ": ";
      if (CodeOf(message) != StatusCode::kOk) {
        text += std::string(StatusCodeName(CodeOf(message))) + ": " + TextOf(message);
        continue;
      }
      text += OpOf(message) == ps::Op::kPending ? "waits for " + TextOf(message) : "ok";
      if (message.data.empty()) continue;
      text += " [";
      for (const float value : ToFloats(message.data[0].bytes())) {
        text += (text.back() == '[' ? "" : ", ") + std::to_string(static_cast<int>(value));
      }
      text += "]";
    }
    return text;
  }
  double MetricOf(const std::string& name) {
    double found = -1;
    bench_.server().Measure(
        [&](const Metrics& metrics) { found = metrics.numbers().at({name, Metrics::kWhole}); });
    bench_.Settle();
    return found;
  }

  ServerBench bench_{Options(3)};
  Key key_ = 7;
  uint64_t sequence_ = 0;
  bool notes_answers_ = false;  // each request says that all before it have their answers
};

TEST_F(ExchangeTest, TakersGetTheReductionOnceAllHaveGiven) {
  struct Case {
    Reduction reduction;
    const char* result;
  };
  for (const auto& [reduction, result] :
       {Case{Reduction::kSum, "[11, 6]"}, Case{Reduction::kMin, "[1, -2]"},
        Case{Reduction::kMax, "[10, 8]"}, Case{Reduction::kProduct, "[10, -16]"}}) {
    ++key_;
    ExchangeTerms terms = SumOfTwo();
    terms.reduction = reduction;
    EXPECT_EQ(TextOfAll(Take(0, terms)), "");
    EXPECT_EQ(TextOfAll(Give(0, terms, {1, 8})), "to 0: ok");
    EXPECT_EQ(TextOfAll(Give(1, terms, {10, -2})), std::string("to 1: ok; to 0: ok ") + result);
    EXPECT_EQ(TextOfAll(Take(1, terms)), std::string("to 1: ok ") + result);
  }
}

TEST_F(ExchangeTest, ASingleGiverGivesAsItIs) {
  ExchangeTerms terms = SumOfTwo();
  terms.givers = {2};
  EXPECT_EQ(TextOfAll(Give(2, terms, {5, 6})), "to 2: ok");
  EXPECT_EQ(TextOfAll(Take(0, terms)), "to 0: ok [5, 6]");
  EXPECT_EQ(TextOfAll(Take(1, terms)), "to 1: ok [5, 6]");
}

TEST_F(ExchangeTest, ATakerMayGiveByTheSameRequest) {
  const ExchangeTerms terms = SumOfTwo();
  const auto both = [&](int32_t rank, const std::vector<float>& values) {
    return TextOfAll(bench_.Do(Make(ps::Op::kTake, rank, terms, 0, Floats(values))));
  };
  EXPECT_EQ(both(0, {1, 2}), "");
  --sequence_;
  EXPECT_NE(both(0, {1, 2}).find("to 0: waits for worker 1 to call"), std::string::npos);
  EXPECT_EQ(both(1, {10, 20}), "to 0: ok [11, 22]; to 1: ok [11, 22]");
  EXPECT_EQ(both(1, {10, 20}), "to 1: ok [11, 22]") << "a repeat, whose answer was lost";
  ++key_;
  ExchangeTerms gather = terms;
  gather.givers = {0};
  EXPECT_SNAPSHOT(
      TextOfAll(bench_.Do(Make(ps::Op::kTake, 1, gather, 0, Floats({1, 2})))),
      R"snap(to 1: kInvalidArgument: take key=8 partition=0 from worker 1: it is no giver of 'gradients' (float32 of 8 bytes from worker 0 to workers 0, 1))snap");
}

TEST_F(ExchangeTest, EmptyContributionsMeet) {
  ExchangeTerms terms = SumOfTwo();
  terms.size_bytes = 0;
  EXPECT_EQ(TextOfAll(Give(0, terms, {})), "to 0: ok");
  EXPECT_EQ(TextOfAll(Take(0, terms)), "");
  EXPECT_EQ(TextOfAll(Give(1, terms, {})), "to 1: ok; to 0: ok");
  EXPECT_EQ(TextOfAll(Take(1, terms)), "to 1: ok");
}

TEST_F(ExchangeTest, MemoryGoesWhenAllTakersToldThatTheyHaveIt) {
  const ExchangeTerms terms = SumOfTwo();
  Give(0, terms, {1, 2});
  Give(1, terms, {3, 4});
  EXPECT_EQ(MetricOf("value_bytes"), 8);
  Take(0, terms);
  Take(1, terms);
  EXPECT_EQ(TextOfAll(Taken(0)), "to 0: ok");
  EXPECT_EQ(TextOfAll(Take(1, terms)), "to 1: ok [4, 6]") << "its answer was lost";
  EXPECT_EQ(MetricOf("value_bytes"), 8);
  EXPECT_EQ(TextOfAll(Taken(1)), "to 1: ok");
  EXPECT_EQ(MetricOf("value_bytes"), 0);
  // Late repeats begin nothing.
  EXPECT_EQ(TextOfAll(Taken(1)), "to 1: ok");
  EXPECT_EQ(TextOfAll(Give(0, terms, {1, 2})), "to 0: ok");
  EXPECT_SNAPSHOT(
      TextOfAll(Take(0, terms)),
      R"snap(to 0: kFailedPrecondition: take key=7 partition=0 from worker 0: the exchange is over, and its key cannot be used again)snap");
  EXPECT_EQ(MetricOf("value_bytes"), 0);
}

TEST_F(ExchangeTest, ManyExchangesLeaveNoMoreMemoryThanFew) {
  notes_answers_ = true;
  Give(0, SumOfTwo(), {1, 2});
  EXPECT_EQ(MetricOf("exchanges"), 1);
  EXPECT_EQ(MetricOf("exchange_partitions"), 1);
  Quit(0, StatusCode::kCancelled, "abort");
  EndMany(static_cast<int>(EndedExchanges::kLeast) + 500);
  for (const char* const name : {"value_bytes", "held_bytes", "exchanges", "exchange_partitions"}) {
    EXPECT_EQ(MetricOf(name), 0) << name;
  }
  EXPECT_LE(MetricOf("ended_exchanges"), EndedExchanges::kLeast + 2);
}

TEST_F(ExchangeTest, LateRequestsOfAnExchangeThatIsOverBeginNothingAfterManyEnds) {
  for (const int32_t rank : {0, 1}) Give(rank, SumOfTwo(), {1, 2});
  for (const int32_t rank : {0, 1}) Taken(rank);
  key_ = 8;
  Give(0, SumOfTwo(), {1, 2});
  Quit(0, StatusCode::kCancelled, "abort");
  EndMany(static_cast<int>(EndedExchanges::kLeast) + 500);
  key_ = 7;
  EXPECT_EQ(TextOfAll(Give(0, SumOfTwo(), {1, 2})), "to 0: ok") << "its answer was lost";
  key_ = 8;
  EXPECT_EQ(TextOfAll(Give(1, SumOfTwo(), {1, 2})), "to 1: kCancelled: abort; missing: worker 1")
      << "the first request of this worker";
  EXPECT_EQ(MetricOf("exchanges"), 0);
}

TEST_F(ExchangeTest, ACopyOfAnAnsweredRequestBeginsNothing) {
  Give(0, SumOfTwo(), {1, 2});
  key_ = 8;
  notes_answers_ = true;
  Give(0, SumOfTwo(), {1, 2});
  EXPECT_EQ(MetricOf("exchanges"), 2);
  key_ = 9;
  notes_answers_ = false;
  sequence_ = 0;
  EXPECT_EQ(TextOfAll(Give(0, SumOfTwo(), {1, 2})), "to 0: ok");
  sequence_ = 0;
  EXPECT_EQ(CodeOf(Take(0, SumOfTwo()).at(0)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(MetricOf("exchanges"), 2);
}

TEST_F(ExchangeTest, OnlyItsWorkersEndAnExchange) {
  Give(0, SumOfTwo(), {1, 2});
  EXPECT_SNAPSHOT(
      TextOfAll(Quit(2, StatusCode::kCancelled, "abort")),
      R"snap(to 2: kInvalidArgument: quit key=7 from worker 2: it is no worker of 'gradients' (sum of float32 of 8 bytes from workers 0, 1 to workers 0, 1))snap");
  ExchangeTerms terms = SumOfTwo();
  terms.takers = {2};
  EXPECT_SNAPSHOT(
      TextOfAll(Quit(2, StatusCode::kCancelled, "abort", terms)),
      R"snap(to 2: kFailedPrecondition: quit key=7 from worker 2: it is no worker of 'gradients' (sum of float32 of 8 bytes from workers 0, 1 to workers 0, 1))snap");
  terms.takers = {3};
  EXPECT_EQ(CodeOf(Quit(0, StatusCode::kCancelled, "abort", terms).at(0)),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MetricOf("exchanges"), 1);
  EXPECT_EQ(TextOfAll(Quit(1, StatusCode::kCancelled, std::string(5000, 'x'))), "to 1: ok");
  EXPECT_EQ(TextOf(Take(0, SumOfTwo()).at(0)).size(),
            Exchanges::kMostReasonBytes + std::string("; missing: worker 1").size());
}

TEST_F(ExchangeTest, AWorkerThatOnlyQuitsLeavesItsPlaceFree) {
  Quit(0, StatusCode::kCancelled, "abort");
  EXPECT_TRUE(bench_.server().OnWorkerVacant(ps::WorkerId(2), true).ok());
}

TEST_F(ExchangeTest, OnlyRequestsOfNoCorrectWorkerAreViolations) {
  Give(0, SumOfTwo(), {1, 2});
  Take(0, SumOfTwo());
  ExchangeTerms other = SumOfTwo();
  other.label = "another";
  Give(1, other, {3, 4});
  Take(1, other);
  EXPECT_TRUE(bench_.violations.empty()) << "scripts differ";
  ++key_;
  Take(2, SumOfTwo());
  EXPECT_EQ(bench_.violations.size(), 1U);
}

TEST_F(ExchangeTest, ARepeatIsAddedOnce) {
  const ExchangeTerms terms = SumOfTwo();
  EXPECT_EQ(TextOfAll(Give(0, terms, {1, 2})), "to 0: ok");
  EXPECT_EQ(TextOfAll(Give(0, terms, {1, 2})), "to 0: ok");
  EXPECT_EQ(TextOfAll(Take(0, terms)), "");
  --sequence_;
  EXPECT_SNAPSHOT(
      TextOfAll(Take(0, terms)),
      R"snap(to 0: waits for worker 1 to call 'gradients' (sum of float32 of 8 bytes from workers 0, 1 to workers 0, 1))snap");
  EXPECT_EQ(TextOfAll(Give(1, terms, {10, 20})), "to 1: ok; to 0: ok [11, 22]");
}

TEST_F(ExchangeTest, OtherTermsFailItForAllOfItsWorkers) {
  const ExchangeTerms terms = SumOfTwo();
  Give(0, terms, {1, 2});
  Take(0, terms);
  ExchangeTerms other = terms;
  other.reduction = Reduction::kMax;
  other.label = "maximum";
  const std::string both =
      "kInvalidArgument: workers call different exchanges: worker 1 calls 'maximum' (max of "
      "float32 "
      "of 8 bytes from workers 0, 1 to workers 0, 1), and worker 0 calls 'gradients' (sum of "
      "float32 of 8 bytes from workers 0, 1 to workers 0, 1); all ranks of a group have to make "
      "the same calls in the same order";
  EXPECT_EQ(TextOfAll(Give(1, other, {3, 4})), "to 1: " + both + "; to 0: " + both);
  EXPECT_EQ(TextOfAll(Take(1, other)), "to 1: " + both) << "later requests too";
  EXPECT_EQ(MetricOf("value_bytes"), 0);
}

TEST_F(ExchangeTest, RequestsThatDoNotFitAreRefusedAlone) {
  ExchangeTerms terms = SumOfTwo();
  EXPECT_SNAPSHOT(
      TextOfAll(Take(2, terms)),
      R"snap(to 2: kInvalidArgument: take key=7 partition=0 from worker 2: it is no taker of 'gradients' (sum of float32 of 8 bytes from workers 0, 1 to workers 0, 1))snap");
  ps::Message cut = Make(ps::Op::kTake, 0, terms, 0, {});
  test::ChangeRequest(&cut, [](protocol::DataRequest* body) { body->offset_bytes = 64; });
  EXPECT_SNAPSHOT(
      TextOfAll(bench_.Do(std::move(cut))),
      R"snap(to 0: kInvalidArgument: take key=7 partition=0 from worker 0: it is another partition than its terms say)snap");
  ps::Message beyond = Make(ps::Op::kTake, 0, terms, 0, {});
  test::ChangeRequest(&beyond, [](protocol::DataRequest* body) { body->partition = 1; });
  EXPECT_SNAPSHOT(
      TextOfAll(bench_.Do(std::move(beyond))),
      R"snap(to 0: kInvalidArgument: take key=7 partition=1 from worker 0: the exchange has 1 partition)snap");
  ++key_;
  terms.takers = {0, 3};
  EXPECT_SNAPSHOT(
      TextOfAll(Take(0, terms)),
      R"snap(to 0: kInvalidArgument: take key=8 partition=0 from worker 0: the job has only workers 0 to 2)snap");
  ps::Message none = Make(ps::Op::kTake, 0, terms, 0, {});
  test::ChangeRequest(&none, [](protocol::DataRequest* body) { body->terms = "\xff"; });
  EXPECT_EQ(CodeOf(bench_.Do(std::move(none)).at(0)), StatusCode::kInvalidArgument);
  ps::Message taken = MakeRequest({.op = ps::Op::kTaken, .sequence = ++sequence_});
  test::ChangeRequest(&taken, [](protocol::DataRequest* body) { body->taken = "\xff"; });
  EXPECT_EQ(CodeOf(bench_.Do(std::move(taken)).at(0)), StatusCode::kInvalidArgument);
  Taken(1, 5);  // of no exchange
}

TEST_F(ExchangeTest, AWorkerThatQuitsEndsItForAll) {
  const ExchangeTerms terms = SumOfTwo();
  Give(0, terms, {1, 2});
  Take(0, terms);
  EXPECT_EQ(TextOfAll(Quit(0, StatusCode::kDeadlineExceeded, "30 s are over")),
            "to 0: kDeadlineExceeded: 30 s are over; missing: worker 1; to 0: ok");
  EXPECT_EQ(TextOfAll(Give(1, terms, {1, 2})),
            "to 1: kDeadlineExceeded: 30 s are over; missing: worker 1");
  ++key_;
  EXPECT_EQ(TextOfAll(Quit(0, StatusCode::kCancelled, "abort")), "to 0: ok");
  EXPECT_EQ(TextOfAll(Take(1, terms)), "to 1: kCancelled: abort") << "before it began";
}

TEST_F(ExchangeTest, AWorkerThatIsGoneFailsOnlyExchangesThatNeedIt) {
  const ExchangeTerms terms = SumOfTwo();
  const Status lost = Status::Unavailable("lost worker 1");
  Give(0, terms, {1, 2});
  Take(0, terms);
  key_ = 8;
  Give(1, terms, {1, 2});
  Take(0, terms);
  key_ = 9;
  ExchangeTerms gather = terms;
  gather.givers = {0};
  Give(0, gather, {3, 4});
  Taken(0);
  bench_.server().OnWorkerGone(1, lost);
  EXPECT_EQ(TextOfAll(bench_.Settle()), "to 0: kUnavailable: lost worker 1");
  EXPECT_EQ(MetricOf("value_bytes"), 8) << "of key 8, which has its contribution";
  key_ = 8;
  EXPECT_EQ(TextOfAll(Give(0, terms, {1, 2})), "to 0: ok; to 0: ok [2, 4]");
  Taken(0);
  EXPECT_EQ(MetricOf("value_bytes"), 0) << "a worker that is gone takes nothing";
  key_ = 10;
  EXPECT_EQ(TextOfAll(Give(0, terms, {1, 2})), "to 0: kUnavailable: lost worker 1");
}

TEST_F(ExchangeTest, NoWorkerTakesThePlaceOfALostWorker) {
  EXPECT_TRUE(bench_.server().OnWorkerVacant(ps::WorkerId(2), true).ok());
  Give(0, SumOfTwo(), {1, 2});
  const Status status = bench_.server().OnWorkerVacant(ps::WorkerId(2), true);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("lost worker 2, and no worker can take its place"),
            std::string::npos);
}

TEST_F(ExchangeTest, TheEndOfTheJobRefusesRequestsThatWait) {
  Take(0, SumOfTwo());
  bench_.server().Fail(Status::Cancelled("the end"));
  EXPECT_EQ(TextOfAll(bench_.Settle()), "to 0: kCancelled: the end");
}

TEST(ExchangeBounds, HoldForThePartitionsOfAllExchanges) {
  std::vector<ps::Message> answers;
  ShardState shard;
  shard.view = job::ShareView({.role = job::Role::kServer}, 2, 1);
  const SendFn send = [&](ps::Message message) { answers.push_back(std::move(message)); };
  shard.send = send;
  Exchanges exchanges(shard, send, protocol::Rules(), 2);
  ExchangeTerms terms = SumOfTwo();
  terms.size_bytes = 192;
  uint64_t sequence = 0;
  const auto take = [&](int32_t rank, Key key, uint32_t partition) {
    const Partition cut = protocol::PartitionOf(terms, partition);
    protocol::Call call;
    call.worker_id = ps::WorkerId(rank);
    call.worker_rank = rank;
    call.extension.sequence = ++sequence;
    call.extension.op = ps::Op::kTake;
    call.request = {.key = key,
                    .partition = partition,
                    .offset_bytes = cut.offset_bytes,
                    .size_bytes = cut.size_bytes,
                    .terms = protocol::Encode(terms)};
    exchanges.Handle(call);
  };
  take(0, 7, 0);
  take(0, 8, 0);
  take(1, 8, 0);
  EXPECT_TRUE(answers.empty());
  take(0, 8, 1);
  EXPECT_SNAPSHOT(
      TextOf(answers.at(0)),
      R"snap(take key=8 partition=1 from worker 0: the exchanges under way have 2 partitions already)snap");
  EXPECT_EQ(CodeOf(answers.at(0)), StatusCode::kResourceExhausted);
  exchanges.OnWorkerGone(0, Status::Unavailable("lost worker 0"));
  answers.clear();
  terms.givers = {1};
  terms.takers = {1};
  take(1, 9, 2);
  EXPECT_TRUE(answers.empty()) << "the exchanges that failed have given their room back";
}

// Summed by rank: (1e8 + 1) - 1e8 = 0, because 1e8 + 1 rounds to 1e8.
TEST(ExchangeOrder, IsThatOfRanksWhateverComesFirst) {
  constexpr float kOrderMatters[] = {1e8F, 1, -1e8F};
  for (const bool deterministic : {true, false}) {
    std::vector<int32_t> order = {0, 1, 2};
    do {
      ServerOptions options;
      options.view = job::ShareView({.role = job::Role::kServer}, 3, 1);
      options.deterministic = deterministic;
      options.hold_bytes = deterministic ? 0 : 1024;
      ServerBench bench(options);
      const ExchangeTerms terms{
          .size_bytes = 4, .partition_bytes = 64, .givers = {0, 1, 2}, .takers = {0}};
      const auto ask = [&](ps::Op op, int32_t rank, std::vector<std::byte> payload) {
        ps::Message message = MakeRequest({.op = op, .rank = rank, .payload = std::move(payload)});
        test::ChangeRequest(&message, [&](protocol::DataRequest* body) {
          body->size_bytes = 4;
          body->terms = protocol::Encode(terms);
        });
        return bench.Do(std::move(message));
      };
      for (const int32_t rank : order) ask(ps::Op::kGive, rank, Floats({kOrderMatters[rank]}));
      const std::vector<ps::Message> taken = ask(ps::Op::kTake, 0, {});
      ASSERT_EQ(taken.size(), 1U);
      EXPECT_EQ(ToFloats(taken[0].data.at(0).bytes()), std::vector<float>{0});
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

}  // namespace
}  // namespace bs::server
