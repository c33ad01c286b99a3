#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "base/loop_thread.h"
#include "base/notification.h"
#include "protocol/bodies.h"
#include "server/bench.h"

namespace bs::server {
namespace {

ServerOptions Workers(int32_t num_workers) {
  ServerOptions options;
  options.view = job::ShareView({.role = job::Role::kServer}, num_workers, 1);
  options.max_partition_bytes = 1 << 20;
  return options;
}

TEST(ServerTest, BytesThatWaitForAShardAreBoundedAndTheRestIsTakenWhenRepeated) {
  ServerOptions options = Workers(2);
  options.max_backlog_bytes = uint64_t{8} << 20U;
  ServerBench bench(options);
  EXPECT_EQ(bench.Do(Push(0, 0, Floats(std::vector<float>(1U << 18U, 1)))).size(), 1u);
  const auto post = [&](int32_t rank) {  // as who has no regard to credit
    bench.Post(MakeRequest(Push(rank, 1, Floats(std::vector<float>(1U << 18U, 1)))));
  };
  for (int turn = 0; turn < 3; ++turn) {  // no shard runs in between
    for (int i = 0; i < 7; ++i) post(1);
    for (const ps::Message& answer : bench.Settle()) EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
  }
  for (int i = 0; i < 9; ++i) post(1);
  post(0);  // another's part of it is his
  const std::vector<ps::Message> answers = bench.Settle();
  EXPECT_EQ(answers.size(), 10u);
  int put_off = 0;
  for (const ps::Message& answer : answers) {
    if (CodeOf(answer) == StatusCode::kOk) continue;
    ++put_off;
    EXPECT_EQ(OpOf(answer), ps::Op::kPending) << "which ends nothing";
    EXPECT_EQ(CodeOf(answer), StatusCode::kResourceExhausted);
    EXPECT_THAT(TextOf(answer), testing::HasSubstr("the server: 7347200 bytes of requests"));
  }
  EXPECT_EQ(put_off, 2);
  EXPECT_TRUE(bench.violations.empty());
  EXPECT_THAT(bench.warnings, testing::ElementsAre(testing::AllOf(
                                  testing::HasSubstr("WARNING push key=7 round=1 partition=0 from "
                                                     "worker 1 is deferred"),
                                  testing::HasSubstr("bytes of requests of this worker"))))
      << "once a minute, and never of who did not fill it";
  post(1);
  const std::vector<ps::Message> again = bench.Settle();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(CodeOf(again[0]), StatusCode::kOk) << "there is room now";
}

TEST(ServerTest, OnlyRequestsThatNoCorrectWorkerSendsAreTold) {
  ServerBench bench(Workers(2));
  bench.Do(Push(0, 0, Floats({1})));
  bench.Do(Push(0, 0, Floats({1})));  // again
  bench.Do(Push(1, 5, Floats({1})));  // a round to come
  bench.Do(Pull(1, 7, 4));            // the same
  bench.Do(Push(0, 1, Floats({1})));
  Ask released = Push(0, 3, Floats({1}));
  released.layout_version = 1;
  bench.Do(released);
  EXPECT_TRUE(bench.violations.empty());
  ps::Message answer = MakeRequest(Pull(1, 0, 4));
  answer.meta.request = false;
  EXPECT_TRUE(bench.Do(std::move(answer)).empty());
  bench.Refused(Push(5, 0, Floats({1})));     // the dispatcher refuses it
  bench.Refused(Push(1, 1, Floats({1, 2})));  // a shard does
  Ask odd = Pull(0, 0, 4);
  odd.op = static_cast<ps::Op>(77);
  bench.Refused(odd);
  EXPECT_THAT(bench.violations,
              testing::ElementsAre("worker 1: an answer to a server",
                                   testing::HasSubstr("worker 5: push key=7 round=0"),
                                   testing::HasSubstr("worker 1: push key=7 round=1"),
                                   testing::HasSubstr("worker 0: ")));
}

TEST(ServerTest, ARequestThatWaitsForItsTurnKeepsThePromiseOfMemoryForItsSum) {
  ServerOptions options = Workers(3);
  options.deterministic = true;
  uint64_t available_bytes = uint64_t{8} << 20U;
  options.available_bytes = [&] { return available_bytes; };
  ServerBench bench(options);
  const auto push = [&](int32_t rank, uint64_t key, uint64_t round) {
    Ask ask = Push(rank, round, Floats(std::vector<float>(1U << 18U, 1)));  // a MiB
    ask.key = key;
    return CodeOf(bench.Do(ask).at(0));
  };
  for (const uint64_t key : {1, 2}) EXPECT_EQ(push(0, key, 0), StatusCode::kOk);
  available_bytes = uint64_t{3} << 19U;  // for the sum of one of them
  EXPECT_EQ(push(2, 1, 1), StatusCode::kOk);
  EXPECT_EQ(push(2, 2, 1), StatusCode::kResourceExhausted) << "the other has the promise";
  EXPECT_EQ(push(0, 1, 1), StatusCode::kOk) << "nor does its own round need another";
  EXPECT_EQ(push(2, 2, 1), StatusCode::kOk) << "it is used, and the kernel counts it now";
  EXPECT_EQ(push(1, 1, 1), StatusCode::kOk);
  EXPECT_EQ(push(1, 2, 1), StatusCode::kOk);
  EXPECT_EQ(push(2, 3, 0), StatusCode::kFailedPrecondition);
  EXPECT_EQ(push(0, 3, 0), StatusCode::kResourceExhausted) << "that of the second is promised";
  EXPECT_EQ(push(0, 2, 1), StatusCode::kOk) << "all that wait have their turn";
  EXPECT_EQ(push(0, 3, 0), StatusCode::kOk);
}

TEST(ServerTest, APartitionThatDoesNotFitIntoMemoryIsRefusedByNameAndOtherKeysGoOn) {
  ServerOptions options = Workers(1);
  uint64_t available_bytes = uint64_t{2} << 20U;
  options.available_bytes = [&] { return available_bytes; };
  ServerBench bench(options, 2);
  const auto push = [](uint64_t key, uint64_t round, Mode mode = Mode::kSynchronous) {
    Ask ask = Push(0, round, Floats(std::vector<float>(1U << 18U, 1)));  // a MiB
    ask.key = key;
    ask.mode = mode;
    return ask;
  };
  EXPECT_EQ(CodeOf(bench.Do(push(1, 0)).at(0)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(push(1, 1)).at(0)), StatusCode::kOk);
  available_bytes = (1U << 20U) - 1;
  for (const Mode mode : {Mode::kSynchronous, Mode::kAsynchronous}) {
    EXPECT_EQ(
        bench.Refused(push(mode == Mode::kSynchronous ? 2 : 3, 0, mode)),
        std::make_pair(StatusCode::kResourceExhausted,
                       std::string("push key=") +
                           (mode == Mode::kSynchronous ? "2 round=0" : "3 push_count=0") +
                           " partition=0 from worker 0: its 1048576 bytes do not fit "
                           "into memory, of which 1048575 are left here: use more servers, or "
                           "larger ones"));
  }
  available_bytes = 0;  // rounds of a key that has its memory need no more
  for (const uint64_t round : {2u, 3u, 4u}) {
    EXPECT_EQ(CodeOf(bench.Do(push(1, round)).at(0)), StatusCode::kOk);
  }
}

TEST(ServerTest, CodesThatWaitForTheirTurnNeedMemory) {
  ServerOptions options = Workers(4);
  uint64_t available_bytes = uint64_t{64} << 20U;
  options.available_bytes = [&] { return available_bytes; };
  ServerBench bench(options, 2);
  const std::vector<float> values(1U << 18U, 1);
  bench.Do(Push(0, 0, Floats(values)));
  const auto push = [&](int32_t rank) {
    Ask ask = Push(rank, 1, std::vector<std::byte>(values.size() * 2));  // bfloat16
    ask.size_bytes = values.size() * sizeof(float);
    ask.coding = {.codec = 3, .sums = SumsTravel::kSame};
    return ask;
  };
  EXPECT_EQ(CodeOf(bench.Do(push(3)).at(0)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(push(2)).at(0)), StatusCode::kOk);
  available_bytes = (1U << 20U) + (1U << 19U) - 1;  // a MiB is promised to the sum
  EXPECT_EQ(bench.Refused(push(1)),
            std::make_pair(StatusCode::kResourceExhausted,
                           std::string("push key=7 round=1 partition=0 from worker 1: its 524288 "
                                       "bytes do not fit into memory, of which 524287 are left "
                                       "here: use more servers, or larger ones")));
}

float SumOf(const ps::Message& pulled) { return ToFloats(pulled.data.at(0).bytes()).at(0); }

TEST(ServerTest, ARoundGoesFromPushesToPulls) {
  ServerBench bench(Workers(2));
  EXPECT_TRUE(bench.Do(Pull(1, 0, 4)).empty());
  std::vector<ps::Message> answers = bench.Do(Push(0, 0, Floats({5})));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(OpOf(answers[0]), ps::Op::kPush);
  EXPECT_EQ(SumOf(answers[1]), 5);
  for (const int32_t rank : {0, 1}) {
    answers = bench.Do(Push(rank, 1, Floats({2})));
    EXPECT_EQ(answers.size(), 1u);
  }
  answers = bench.Do(Pull(0, 1, 4));
  EXPECT_EQ(SumOf(answers.at(0)), 4);
  const ps::Message& sum = answers[0];
  EXPECT_EQ(sum.peer, ps::WorkerId(0));
  EXPECT_FALSE(sum.meta.request);
  EXPECT_EQ(sum.meta.customer_id, 3);
  EXPECT_EQ(sum.meta.timestamp, 5);
  EXPECT_EQ(sum.meta.extension.sequence, 1003u);
  EXPECT_EQ(test::ResponseIn(sum).identity.key, 7u);
}

TEST(ServerTest, RoundsAreToldWithTheShardTheyAreOn) {
  ServerOptions options = Workers(1);
  options.dispatcher_bytes = 4;
  std::map<Key, size_t> shard_of;
  options.on_round = [&](size_t shard, const RoundTimes& times) { shard_of[times.key] = shard; };
  ServerBench bench(options, 2);
  for (const uint64_t key : {1, 2, 3}) {
    Ask push = Push(0, 0, key == 3 ? Floats({1}) : Floats({1, 2}));
    push.key = key;
    bench.Do(push);
  }
  EXPECT_EQ(shard_of, (std::map<Key, size_t>{{1, 0}, {2, 1}, {3, 2}})) << "2 is the dispatcher";
}

ps::Message Optimizer(int32_t rank, uint64_t number, const std::string& text) {
  Ask ask;
  ask.op = ps::Op::kOptimizer;
  ask.rank = rank;
  ask.round = number;
  ps::Message message = MakeRequest(ask);
  test::ChangeRequest(&message, [&](auto* body) { body->optimizer = text; });
  return message;
}

Ask Async(Ask ask) {
  ask.mode = Mode::kAsynchronous;
  return ask;
}

TEST(ServerTest, TheFirstCallOfEachNumberSetsTheOptimizerAndLaterCallsLoseNothing) {
  ServerBench bench(Workers(2), 2);
  const std::string momentum = "sgd learning_rate=-1 momentum=0.5";
  EXPECT_EQ(CodeOf(bench.Do(Optimizer(0, 1, momentum)).at(0)), StatusCode::kOk);
  bench.Do(Async(Push(0, 0, Floats({0}))));
  bench.Do(Async(Push(0, 1, Floats({4}))));
  // Worker 1 comes late, with its own rates: the momentum stays.
  EXPECT_EQ(CodeOf(bench.Do(Optimizer(1, 1, "sgd momentum=0.5 wd=1")).at(0)), StatusCode::kOk);
  bench.Do(Async(Push(1, 1, Floats({0}))));
  EXPECT_EQ(SumOf(bench.Do(Async(Pull(1, 1, 4))).at(0)), 6);
  // Another one of the same number is a disagreement; of a new number it starts afresh.
  const auto [code, text] = bench.Refused(Optimizer(1, 1, "sgd"));
  EXPECT_EQ(code, StatusCode::kInvalidArgument);
  EXPECT_THAT(text, testing::HasSubstr("'sgd' differs from 'sgd learning_rate=-1 momentum=0.5'"));
  EXPECT_EQ(CodeOf(bench.Do(Optimizer(0, 2, momentum)).at(0)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(Optimizer(1, 1, "adam")).at(0)), StatusCode::kOk) << "an old call";
  bench.Do(Async(Push(0, 2, Floats({0}))));
  EXPECT_EQ(SumOf(bench.Do(Async(Pull(0, 2, 4))).at(0)), 6);
  EXPECT_EQ(bench.Refused(Optimizer(0, 3, "exec")).first, StatusCode::kInvalidArgument);
}

TEST(ServerTest, AnUnknownModeIsRefused) {
  ServerBench bench(Workers(1));
  ps::Message push = MakeRequest(Push(0, 0, Floats({1})));
  test::ChangeRequest(&push, [](auto* body) { body->mode = 2; });
  const auto [code, text] = bench.Refused(std::move(push));
  EXPECT_EQ(code, StatusCode::kInvalidArgument);
  EXPECT_THAT(text, testing::HasSubstr("mode 2 is unknown"));
}

TEST(ServerTest, AnAttachedWorkerCountsAsTheWorkerItStandsBeside) {
  ServerBench bench(Workers(2));
  ps::Message push = MakeRequest(Push(0, 0, Floats({5})));
  push.peer = ps::AttachedId(0);
  EXPECT_EQ(bench.Do(std::move(push)).at(0).peer, ps::AttachedId(0));
  ps::Message pull = MakeRequest(Pull(1, 0, 4));
  pull.peer = ps::AttachedId(1);
  EXPECT_EQ(SumOf(bench.Do(std::move(pull)).at(0)), 5);
}

TEST(ServerTest, KeysAreDeclaredAndLookedUp) {
  ServerBench bench(Workers(2));
  Ask lookup;
  lookup.op = ps::Op::kLookup;
  lookup.rank = 1;
  lookup.size_bytes = 8;
  EXPECT_TRUE(bench.Do(lookup).empty());
  Ask declare = lookup;
  declare.op = ps::Op::kDeclare;
  declare.rank = 0;
  declare.payload.resize(2);
  ps::Message declaration = MakeRequest(declare);
  test::ChangeRequest(&declaration, [](auto* body) { body->partition_bytes = 64; });
  const std::vector<ps::Message> answers = bench.Do(std::move(declaration));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(OpOf(answers[0]), ps::Op::kDeclare);
  EXPECT_EQ(OpOf(answers[1]), ps::Op::kLookup);
  EXPECT_EQ(test::ResponseIn(answers[1]).partition_bytes, 64u);
  for (const ps::Message& answer : answers) EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
}

TEST(ServerTest, PartitionsGoToTheShardWithTheFewestBytes) {
  ServerBench bench(Workers(1), 2);
  // 3 to shard 0; then 1, 1, 1 to shard 1; then either; 6 in all.
  uint32_t partition = 0;
  for (const size_t floats : {3u, 1u, 1u, 1u}) {
    Ask push = Push(0, 0, Floats(std::vector<float>(floats)));
    push.partition = partition++;
    bench.Do(push);
  }
  EXPECT_EQ(bench.answers_by_shard, (std::map<size_t, int>{{0, 1}, {1, 3}}));
  // A partition stays where it is.
  Ask pull = Pull(0, 0, 12);
  for (int i = 0; i < 5; ++i) bench.Do(pull);
  EXPECT_EQ(bench.answers_by_shard, (std::map<size_t, int>{{0, 6}, {1, 3}}));
}

TEST(ServerTest, ATooLargePartitionIsRefused) {
  ServerOptions options = Workers(1);
  options.max_partition_bytes = 8;
  ServerBench bench(options);
  EXPECT_EQ(bench.Refused(Push(0, 0, Floats({1, 2, 3}))),
            std::make_pair(StatusCode::kInvalidArgument,
                           std::string("push key=7 round=0 partition=0 from worker 0: 12 bytes are "
                                       "more than the 8 that a partition may have")));
  EXPECT_EQ(bench.Refused(Pull(0, 0, UINT64_MAX)).first, StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(bench.Do(Push(0, 0, Floats({1, 2}))).at(0)), StatusCode::kOk);
}

TEST(ServerTest, APartitionBeginsWithRoundZero) {
  ServerBench bench(Workers(2));
  EXPECT_EQ(bench.Refused(Push(0, 1, Floats({1}))),
            std::make_pair(StatusCode::kFailedPrecondition,
                           std::string("push key=7 round=1 partition=0 from worker 0: worker 0 has "
                                       "not initialised this partition")));
  EXPECT_EQ(bench.Refused(Pull(1, 9, 4)).first, StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.Refused(Push(1, 0, Floats({1}))).first, StatusCode::kFailedPrecondition);
}

// A request of a key that was cut anew once.
Ask Recut(Ask ask) {
  ask.layout_version = 1;
  return ask;
}

Ask ReleaseBefore(uint32_t layout, uint32_t partitions, int32_t rank = 0) {
  return {.op = ps::Op::kRelease, .rank = rank, .partition = partitions, .layout_version = layout};
}

TEST(ServerTest, AKeyThatIsCutAnewGoesOnAndItsOldCutIsForgotten) {
  ServerBench bench(Workers(2));
  bench.Do(Push(0, 0, Floats({0, 0})));
  for (const int32_t rank : {0, 1}) bench.Do(Push(rank, 1, Floats({1, 2})));
  // Whoever is ahead begins; the other still asks for the last sum of the old cut.
  bench.Do(Recut(Push(1, 2, Floats({5}))));
  EXPECT_EQ(CodeOf(bench.Do(Pull(0, 1, 8)).at(0)), StatusCode::kOk);
  bench.Do(Recut(Push(0, 2, Floats({6}))));
  EXPECT_EQ(SumOf(bench.Do(Recut(Pull(0, 2, 4))).at(0)), 11);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(CodeOf(bench.Do(ReleaseBefore(1, 1)).at(0)), StatusCode::kOk);
  }
  const std::vector<ps::Message> stale = bench.Do(Push(1, 1, Floats({1, 2})));
  EXPECT_EQ(CodeOf(stale.at(0)), StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(stale.at(0)), testing::HasSubstr("has released this layout"));
  EXPECT_EQ(CodeOf(bench.Do(Pull(1, 0, 8)).at(0)), StatusCode::kFailedPrecondition)
      << "a late repeat makes nothing new";
  EXPECT_EQ(SumOf(bench.Do(Recut(Pull(1, 2, 4))).at(0)), 11);
}

TEST(ServerTest, ReleasesThatMakeNoSenseAreRefused) {
  ServerBench bench(Workers(2));
  const auto code = [&](const Ask& ask) { return CodeOf(bench.Do(ask).at(0)); };
  EXPECT_EQ(code(ReleaseBefore(1, 1, 1)), StatusCode::kPermissionDenied);
  EXPECT_EQ(code(ReleaseBefore(0, 1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(ReleaseBefore(1, UINT32_MAX)), StatusCode::kOk) << "there is nothing of it";
  EXPECT_EQ(code(Recut(Push(0, 0, Floats({1})))), StatusCode::kFailedPrecondition);
  Ask asynchronous = Recut(Push(0, 1, Floats({1})));
  asynchronous.mode = Mode::kAsynchronous;
  EXPECT_EQ(code(asynchronous), StatusCode::kInvalidArgument);
}

TEST(ServerTest, AsynchronousKeysAreNotReleased) {
  ServerBench bench(Workers(1));
  Ask push = Push(0, 0, Floats({1}));
  push.mode = Mode::kAsynchronous;
  EXPECT_EQ(CodeOf(bench.Do(push).at(0)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(ReleaseBefore(1, 1)).at(0)), StatusCode::kOk);
  Ask pull = Pull(0, 0, 4);
  pull.mode = Mode::kAsynchronous;
  EXPECT_EQ(SumOf(bench.Do(pull).at(0)), 1);
}

TEST(ServerTest, OfAReleaseOfManyPartitionsThePresentPartitionsGo) {
  ServerBench bench(Workers(1));
  bench.Do(Push(0, 0, Floats({1})));
  bench.Do(Push(0, 1, Floats({1})));
  EXPECT_EQ(CodeOf(bench.Do(ReleaseBefore(1, UINT32_MAX)).at(0)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(bench.Do(Pull(0, 1, 4)).at(0)), StatusCode::kFailedPrecondition);
}

TEST(ServerTest, AReleasedCutGivesItsShardRoom) {
  ServerBench bench(Workers(1), 2);
  // 16 bytes on shard 0, then 4 on shard 1: what comes next goes to shard 1 unless 0 is empty.
  bench.Do(Push(0, 0, Floats({1, 2, 3, 4})));
  bench.Do(Push(0, 1, Floats({1, 2, 3, 4})));
  bench.Do(Recut(Push(0, 2, Floats({1}))));
  bench.Do(ReleaseBefore(1, 1));
  const int before = bench.answers_by_shard[0];
  Ask push = Push(0, 0, Floats({1}));
  push.key = 8;
  bench.Do(push);
  EXPECT_EQ(bench.answers_by_shard[0], before + 1);
}

Ask GiveBack(int32_t rank) { return {.op = ps::Op::kGiveBack, .rank = rank, .round = 1}; }

double MetricOf(ServerBench* bench, const std::string& name) {
  double value = -1;
  bench->server().Measure(
      [&](const Metrics& metrics) { value = metrics.numbers().at({name, Metrics::kWhole}); });
  static_cast<void>(bench->Settle());
  return value;
}

TEST(ServerTest, TheLastWorkerToGiveAKeyBackReleasesItsPartitions) {
  ServerBench bench(Workers(2));
  Ask declare{.op = ps::Op::kDeclare, .size_bytes = 8, .payload = std::vector<std::byte>(2)};
  ps::Message declaration = MakeRequest(declare);
  test::ChangeRequest(&declaration, [](auto* body) { body->partition_bytes = 64; });
  bench.Do(std::move(declaration));
  bench.Do(Push(0, 0, Floats({1, 2})));
  for (const int32_t rank : {0, 1}) bench.Do(Push(rank, 1, Floats({1, 2})));
  EXPECT_EQ(MetricOf(&bench, "value_bytes"), 16);
  for (const int32_t rank : {0, 1}) {
    EXPECT_EQ(test::ResponseIn(bench.Do(GiveBack(rank)).at(0)).given_back, rank == 1);
  }
  Ask release = ReleaseBefore(1, 1, 1);
  EXPECT_EQ(bench.Refused(release).first, StatusCode::kPermissionDenied);
  release.given_back = true;
  EXPECT_EQ(CodeOf(bench.Do(release).at(0)), StatusCode::kOk);
  EXPECT_EQ(MetricOf(&bench, "value_bytes"), 0);
  EXPECT_EQ(MetricOf(&bench, "partitions"), 0);
  EXPECT_EQ(bench.Refused(Push(0, 0, Floats({1, 2}))).first, StatusCode::kFailedPrecondition)
      << "a late repeat makes nothing new";
  EXPECT_EQ(CodeOf(bench.Do(Recut(Push(0, 2, Floats({3})))).at(0)), StatusCode::kOk)
      << "rounds go on with a later layout";
}

TEST(ServerTest, StrangersAreRefused) {
  ServerBench bench(Workers(2));
  ps::Message message = MakeRequest(Push(2, 0, Floats({1})));
  EXPECT_EQ(bench.Refused(std::move(message)).first, StatusCode::kInvalidArgument);
  for (const int32_t peer : {ps::ServerId(0), 1, 0, -7, 3, INT32_MIN, ps::kEmpty - 1}) {
    message = MakeRequest(Push(0, 0, Floats({1})));
    message.peer = peer;
    EXPECT_EQ(bench.Refused(std::move(message)).first, StatusCode::kInvalidArgument) << peer;
  }
  message = MakeRequest(Push(0, 0, Floats({1})));
  message.peer = ps::kEmpty;
  EXPECT_TRUE(bench.Do(std::move(message)).empty()) << "nobody to answer";
}

TEST(ServerTest, ResponsesAreNotAnswered) {
  ServerBench bench(Workers(1));
  ps::Message message = MakeRequest(Push(0, 0, Floats({1})));
  message.meta.request = false;
  EXPECT_TRUE(bench.Do(std::move(message)).empty());
}

TEST(ServerTest, OperationsThatAreNotOfServersAreRefused) {
  ServerBench bench(Workers(1));
  for (const uint32_t op : {0u, 5u, 16u, 21u, 77u, UINT32_MAX}) {
    Ask ask = Pull(0, 0, 4);
    ask.op = static_cast<ps::Op>(op);
    EXPECT_EQ(bench.Refused(ask).first, StatusCode::kInvalidArgument) << op;
  }
}

TEST(ServerTest, AGoneWorkerIsGoneForDirectoryAndShards) {
  ServerBench bench(Workers(3), 2);
  for (const uint32_t partition : {0u, 1u}) {
    Ask push = Push(0, 0, Floats({1}));
    push.partition = partition;
    bench.Do(push);
    Ask pull = Pull(1, 1, 4);
    pull.partition = partition;
    EXPECT_TRUE(bench.Do(pull).empty());
  }
  Ask lookup;
  lookup.op = ps::Op::kLookup;
  lookup.rank = 1;
  EXPECT_TRUE(bench.Do(lookup).empty());
  for (const int32_t rank : {-1, 3, INT32_MAX}) {
    bench.server().OnWorkerGone(rank, Status::Unavailable("nobody"));
  }
  EXPECT_TRUE(bench.Settle().empty());
  bench.server().OnWorkerGone(0, Status::Unavailable("lost worker 0"));
  const std::vector<ps::Message> refusals = bench.Settle();
  EXPECT_EQ(refusals.size(), 3u);
  for (const ps::Message& refusal : refusals) EXPECT_EQ(TextOf(refusal), "lost worker 0");
  EXPECT_EQ(SumOf(bench.Do(Pull(2, 0, 4)).at(0)), 1);
}

TEST(ServerTest, AfterFailEverythingPendingAndLaterIsRefused) {
  ServerBench bench(Workers(2), 2);
  bench.Do(Push(0, 0, Floats({1})));
  EXPECT_TRUE(bench.Do(Pull(1, 1, 4)).empty());
  Ask lookup;
  lookup.op = ps::Op::kLookup;
  EXPECT_TRUE(bench.Do(lookup).empty());
  bench.server().Fail(Status::Unavailable("lost server 1"));
  bench.server().Fail(Status::Unavailable("again"));
  EXPECT_EQ(bench.Settle().size(), 2u);
  for (const Ask& ask : {Pull(1, 0, 4), lookup}) {
    EXPECT_EQ(bench.Refused(ask),
              std::make_pair(StatusCode::kUnavailable, std::string("lost server 1")));
  }
}

TEST(ServerTest, StockCommandsReachTheirHandler) {
  ServerBench bench(Workers(1));
  ps::Message stop;
  stop.peer = ps::WorkerId(0);
  stop.meta.head = 2;
  stop.meta.request = true;
  stop.meta.simple_app = true;
  EXPECT_EQ(bench.Do(std::move(stop)).size(), 1u);
  EXPECT_EQ(bench.stops, 1);
  ps::Message data;
  data.peer = ps::WorkerId(0);
  data.meta.request = true;
  data.meta.push = true;
  data.meta.head = 0;
  data.data.push_back(ps::Frame::Copy(std::string(8, '\0')));  // key 0
  data.data.push_back(ps::Frame::Copy("abc"));                 // no float32
  EXPECT_TRUE(bench.Do(std::move(data)).empty());
  EXPECT_EQ(bench.failures, 1);
}

// Random requests from bad workers: everything is answered or pending, and a good key is unharmed.
TEST(ServerTest, RandomRequestsAreRefusedAndHarmNoKey) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ServerBench bench(Workers(3), 2);
    const uint64_t odd[] = {0, 1, 2, 3, 4, 8, 12, 4096, 1u << 31, UINT64_MAX, UINT64_MAX - 3};
    const auto pick = [&] { return odd[random() % std::size(odd)]; };
    for (int i = 0; i < 1000; ++i) {
      Ask ask;
      ask.op = static_cast<ps::Op>(random() % 7);
      ask.rank = static_cast<int32_t>(random() % 5) - 1;
      ask.key = pick();
      ask.round = pick();
      ask.partition = static_cast<uint32_t>(pick());
      ask.size_bytes = pick();
      ask.sequence = 1 + random() % 5;
      ask.dtype = static_cast<DType>(random() % 16);
      ask.payload.resize(random() % 3 == 0 ? random() % 9 : 4 * (random() % 3));
      ps::Message message = MakeRequest(ask);
      test::ChangeRequest(&message, [&](auto* body) {
        if (random() % 4 == 0) body->size_bytes = pick();
        body->offset_bytes = pick();
        body->partition_bytes = pick();
      });
      if (random() % 16 == 0) message.data.push_back(ps::Frame::Copy("extra"));
      if (random() % 16 == 0) message.data.clear();
      bench.Post(std::move(message));
    }
    bench.Settle();
    const auto good = [](Ask ask) {
      ask.key = 99;
      return ask;
    };
    bench.Do(good(Push(0, 0, Floats({1}))));
    for (const int32_t rank : {2, 0, 1}) bench.Do(good(Push(rank, 1, Floats({1}))));
    EXPECT_EQ(SumOf(bench.Do(good(Pull(2, 1, 4))).at(0)), 3);
  }
}

// Workers that go round after round on a real server: each pulls a round and then pushes the next.
class Fleet {
 public:
  static constexpr int32_t kWorkers = 3;
  static constexpr uint64_t kKeys = 5;
  static constexpr uint64_t kRounds = 60;
  static constexpr size_t kFloats = 3000;

  Fleet()
      : server_(MakeOptions(), &dispatcher_,
                {{shards_[0].get(), 0}, {shards_[1].get(), 0}, {shards_[2].get(), 0}},
                {.send =
                     [this](ps::Message message) {
                       workers_.Post([this, moved = std::move(message)]() mutable {
                         OnAnswer(std::move(moved));
                       });
                     }},
                Logger()) {}
  // The threads end before the server does.
  ~Fleet() {
    for (auto& shard : shards_) shard.reset();
  }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  void Run() {
    workers_.Post([this] {
      for (uint64_t key = 0; key < kKeys; ++key) {
        Send(Push(0, 0, Payload(0, 0)), key);
        for (int32_t rank = 0; rank < kWorkers; ++rank) Send(Pull(rank, 0, kFloats * 4), key);
      }
    });
    ASSERT_TRUE(done_.WaitFor(std::chrono::seconds(120)));
  }

 private:
  static ServerOptions MakeOptions() {
    ServerOptions options;
    options.view = job::ShareView({.role = job::Role::kServer}, kWorkers, 1);
    return options;
  }
  static std::vector<std::byte> Payload(int32_t rank, uint64_t round) {
    return Floats(
        std::vector<float>(kFloats, static_cast<float>(round) + static_cast<float>(rank)));
  }
  void Send(Ask ask, uint64_t key) {
    ask.key = key;
    dispatcher_.Post(
        [this, message = MakeRequest(ask)]() mutable { server_.OnMessage(std::move(message)); });
  }
  void OnAnswer(ps::Message answer) {
    EXPECT_EQ(CodeOf(answer), StatusCode::kOk) << TextOf(answer);
    if (OpOf(answer) != ps::Op::kPull) return;
    const protocol::RequestIdentity about = test::ResponseIn(answer).identity;
    const float sum = about.count == 0 ? 0 : static_cast<float>(3 * about.count + 3);
    EXPECT_EQ(ToFloats(answer.data.at(0).bytes()), std::vector<float>(kFloats, sum));
    const int32_t rank = RankOf(answer);
    if (about.count == kRounds) {
      if (++finished_ == kWorkers * static_cast<int>(kKeys)) done_.Notify();
      return;
    }
    Send(Push(rank, about.count + 1, Payload(rank, about.count + 1)), about.key);
    Send(Pull(rank, about.count + 1, kFloats * 4), about.key);
  }

  Notification done_;
  int finished_ = 0;  // on workers_
  std::unique_ptr<LoopThread> shards_[3] = {std::make_unique<LoopThread>("shard-0"),
                                            std::make_unique<LoopThread>("shard-1"),
                                            std::make_unique<LoopThread>("shard-2")};
  Server server_;
  LoopThread workers_{"workers"};
  LoopThread dispatcher_{"dispatcher"};
};

TEST(ServerTest, RealThreadsGiveTheSameSums) {
  Fleet fleet;
  fleet.Run();
}

}  // namespace
}  // namespace bs::server
