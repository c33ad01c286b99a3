// The worker as a whole: order, credit, priorities, mistakes of the caller, failures, the end.
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

// Callers name the options: no value can stand in the first place.
static_assert(!std::is_constructible_v<PushPullOptions, Priority>);

PsWorkerOptions Alone() {
  PsWorkerOptions options;
  options.partition_bytes = 64;
  options.credit_bytes = 128;
  return options;
}

using test::About;

TEST(Worker, PullGoesRightBehindItsPushWithTheSamePriority) {
  std::vector<std::byte> value = Bytes(64, 0);
  const std::vector<std::byte> in = Bytes(64, 1);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, -3, in, out);
  ps::Message push = bench.Next();
  ps::Message pull = bench.Next();
  EXPECT_EQ(About(push).op, ps::Op::kPush);
  EXPECT_EQ(About(pull).op, ps::Op::kPull);
  EXPECT_EQ(push.meta.priority, pull.meta.priority);
  for (const ps::Message* message : {&push, &pull}) {
    EXPECT_GT(message->meta.priority, kEarlyPriority);  // as the tensor is small
    EXPECT_EQ(About(*message).key, 7U);
    EXPECT_EQ(About(*message).round, 1U);
    EXPECT_EQ(About(*message).size_bytes, 64U);
  }
  ASSERT_EQ(push.data.size(), 1U);
  EXPECT_EQ(push.data[0].bytes().data(), in.data()) << "the payload was copied";
  bench.Answer(std::move(push));
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_EQ(sum.pulled->calls, 0);
  bench.Answer(std::move(pull), Bytes(64, 9));
  EXPECT_TRUE(sum.pulled->ok());
  EXPECT_EQ(out, Bytes(64, 9));
}

// Declares an asynchronous key; the worker is rank 0.
void InitialiseAsync(Bench* bench, Key key, std::span<std::byte> value) {
  Outcome outcome;
  bench->worker()->Broadcast(key, DType::kFloat32, Mode::kAsynchronous, value,
                             [&](Status status) { outcome = {1, std::move(status)}; });
  for (const ps::Op op : {ps::Op::kDeclare, ps::Op::kPush}) {
    ps::Message request = bench->Next();
    EXPECT_EQ(About(request).op, op);
    EXPECT_EQ(About(request).mode, 1U);
    bench->Answer(std::move(request));
  }
  bench->Run();
  EXPECT_TRUE(outcome.ok());
}

TEST(Worker, AWholeKeyIsDeclaredInOnePieceAndItsFirstPushDescribesIt) {
  std::vector<std::byte> value = Bytes(100'000, 0);
  PsWorkerOptions options = Alone();
  options.partition_bytes = 64;
  Bench bench(options);
  Outcome outcome;
  bench.worker()->BroadcastWhole(7, {DType::kFloat32, "about", true}, value,
                                 [&](Status status) { outcome = {1, std::move(status)}; });
  ps::Message declare = bench.Next();
  EXPECT_EQ(About(declare).partition_bytes, 100'032U) << "whole cache lines";
  EXPECT_EQ(declare.data.at(0).size(), 2U) << "one partition";
  bench.Answer(std::move(declare));
  ps::Message push = bench.Next();
  EXPECT_EQ(About(push).size_bytes, 100'000U);
  EXPECT_EQ(About(push).mode, 1U);
  EXPECT_EQ(About(push).about, "about");
  EXPECT_TRUE(About(push).hosted);
  bench.Answer(std::move(push));
  bench.Run();
  EXPECT_TRUE(outcome.ok());
  bench.worker()->Update(7, {.in = value, .pushed = [](const Status&) {}});
  ps::Message update = bench.Next();
  EXPECT_EQ(About(update).about, "");
  EXPECT_FALSE(About(update).hosted);
  bench.Answer(std::move(update));
  EXPECT_TRUE(bench.Quiet());
}

TEST(Worker, UpdatesOfAnAsynchronousKeyPushOrPullOrBothInOrder) {
  std::vector<std::byte> value = Bytes(64, 0);
  const std::vector<std::byte> in = Bytes(64, 1);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  InitialiseAsync(&bench, 7, value);
  Outcome pushed;
  Outcome fetched;
  Outcome both;
  const auto into = [](Outcome* outcome) {
    return [outcome](Status status) { *outcome = {outcome->calls + 1, std::move(status)}; };
  };
  bench.worker()->Update(7, {.priority = 3,
                             .rates = {.learning_rate = 0.5, .weight_decay = {}, .rescale_grad = 2},
                             .in = in,
                             .pushed = into(&pushed)});
  bench.worker()->Update(7, {.priority = 4, .out = out, .pulled = into(&fetched)});
  bench.worker()->Update(
      7, {.in = in, .out = out, .pushed = [](const Status&) {}, .pulled = into(&both)});
  ps::Message push = bench.Next();
  EXPECT_EQ(About(push).op, ps::Op::kPush);
  EXPECT_EQ(About(push).push_count, 1U);
  EXPECT_EQ(About(push).learning_rate, 0.5);
  EXPECT_EQ(About(push).weight_decay, std::nullopt);
  EXPECT_EQ(About(push).rescale_grad, 2.0);
  EXPECT_TRUE(bench.Quiet()) << "one operation of a key at a time";
  bench.Answer(std::move(push));
  EXPECT_TRUE(pushed.ok());
  ps::Message pull = bench.Next();
  EXPECT_EQ(About(pull).op, ps::Op::kPull);
  EXPECT_EQ(About(pull).push_count, 1U) << "what this worker has pushed";
  EXPECT_EQ(pull.meta.priority, 4);
  EXPECT_TRUE(bench.Quiet());
  bench.Answer(std::move(pull), Bytes(64, 9));
  EXPECT_TRUE(fetched.ok());
  EXPECT_EQ(out, Bytes(64, 9));
  bench.Answer(bench.Next());
  ps::Message second = bench.Next();
  EXPECT_EQ(About(second).push_count, 2U);
  bench.Answer(std::move(second), Bytes(64, 8));
  EXPECT_TRUE(both.ok());
  EXPECT_EQ(out, Bytes(64, 8));
}

TEST(Worker, AKeyIsUsedInTheModeItWasDeclaredIn) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  InitialiseAsync(&bench, 7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(sum.pulled->code(), StatusCode::kInvalidArgument);
  EXPECT_NE(sum.pulled->text().find("another mode"), std::string::npos);
}

TEST(Worker, AnOptimizerIsToldToEveryServerAndItsRefusalConcernsOnlyTheCall) {
  PsWorkerOptions options = Alone();
  options.SetView(job::MakeView({}, 1, 3));
  Bench bench(options);
  for (const uint64_t number : {1, 2}) {
    Outcome outcome;
    bench.worker()->SetOptimizer(
        number == 1 ? "sgd" : "hosted lamb", number == 1 ? "" : "pickle",
        [&](Status status) { outcome = {outcome.calls + 1, std::move(status)}; });
    for (int32_t server = 0; server < 3; ++server) {
      ps::Message request = bench.Next();
      EXPECT_EQ(request.peer, ps::ServerId(server));
      EXPECT_EQ(About(request).op, ps::Op::kOptimizer);
      EXPECT_EQ(About(request).optimizer, number == 1 ? "sgd" : "hosted lamb");
      EXPECT_EQ(request.data.empty() ? "" : request.data[0].text(), number == 1 ? "" : "pickle");
      EXPECT_EQ(About(request).optimizer_call, number);
      EXPECT_EQ(outcome.calls, 0);
      if (number == 2 && server == 1) {
        bench.Refuse(std::move(request), Status::InvalidArgument("optimizer: differs"));
      } else {
        bench.Answer(std::move(request));
      }
    }
    bench.Run();
    EXPECT_EQ(outcome.code(), number == 1 ? StatusCode::kOk : StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, SumMayComeBeforeTheAcknowledgement) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  ps::Message push = bench.Next();
  bench.Answer(bench.Next(), Bytes(64, 9));
  EXPECT_TRUE(sum.pulled->ok());
  EXPECT_EQ(sum.pushed->calls, 0);
  bench.Answer(std::move(push));
  EXPECT_TRUE(sum.pushed->ok());
}

TEST(Worker, CreditBoundsBytesInFlightAndReturnsAtTheAcknowledgement) {
  std::vector<std::byte> value = Bytes(256, 0);
  std::vector<std::byte> out = Bytes(256, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  ps::Message first = bench.Next();
  for (int i = 0; i < 3; ++i) bench.Next();  // its pull, and another pair
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 128U);
  bench.Answer(std::move(first));
  EXPECT_EQ(About(bench.Next()).partition, 2U);
  EXPECT_EQ(About(bench.Next()).op, ps::Op::kPull);
  EXPECT_TRUE(bench.Quiet());
}

TEST(Worker, UrgentTensorOvertakesWaitingPartitions) {
  std::vector<std::byte> large = Bytes(640, 0);
  std::vector<std::byte> small = Bytes(64, 0);
  std::vector<std::byte> large_out = Bytes(640, 0);
  std::vector<std::byte> small_out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(1, large);
  bench.Initialise(2, small);
  bench.PushPull(1, -9, large, large_out);
  ps::Message first = bench.Next();
  for (int i = 0; i < 3; ++i) bench.Next();
  bench.PushPull(2, 5, small, small_out);
  EXPECT_TRUE(bench.Quiet());
  bench.Answer(std::move(first));
  EXPECT_EQ(About(bench.Next()).key, 2U);
}

TEST(Worker, NextRoundBeginsWhenTheSumOfThisRoundIsThere) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out1 = Bytes(64, 0);
  std::vector<std::byte> out2 = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out1);
  bench.PushPull(7, 0, value, out2);
  ps::Message push = bench.Next();
  ps::Message pull = bench.Next();
  bench.Answer(std::move(push));
  EXPECT_TRUE(bench.Quiet());
  bench.Answer(std::move(pull), Bytes(64, 1));
  push = bench.Next();
  pull = bench.Next();
  EXPECT_EQ(About(push).round, 2U);
  bench.Answer(std::move(pull), Bytes(64, 2));
  bench.Answer(std::move(push));
  EXPECT_EQ(out1, Bytes(64, 1));
  EXPECT_EQ(out2, Bytes(64, 2));
}

TEST(Worker, CallsBehindABroadcastWaitForIt) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Broadcast(7, DType::kFloat32, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  bench.Answer(bench.Next());  // declare
  bench.Answer(bench.Next());  // push of round 0
  bench.Answer(bench.Next());
  bench.Answer(bench.Next(), Bytes(64, 3));
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
}

TEST(Worker, MistakesOfTheCallerConcernOnlyThatCall) {
  std::vector<std::byte> value = Bytes(128, 0);
  std::vector<std::byte> out = Bytes(128, 0);
  const std::span<std::byte> all(value);
  Bench bench(Alone());
  const Bench::Sum early = bench.PushPull(7, 0, value, out);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(early.pushed->code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(early.pulled->code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(early.pulled->text(), "push_pull key=7: the key was never broadcast");

  const Outcome* const odd = bench.Broadcast(7, DType::kFloat32, all.first(5));
  const Outcome* const unknown = bench.Broadcast(7, static_cast<DType>(99), value);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(odd->code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown->code(), StatusCode::kInvalidArgument);

  bench.Initialise(7, value);
  const Outcome* const again = bench.Broadcast(7, DType::kFloat32, value);
  const Bench::Sum small = bench.PushPull(7, 0, all.first(64), out);
  const Bench::Sum same = bench.PushPull(7, 0, value, value);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(again->code(), StatusCode::kAlreadyExists);
  EXPECT_SNAPSHOT(
      small.pulled->text(),
      "push_pull key=7: 64 bytes in and 128 bytes out, it was broadcast with 128 bytes");
  EXPECT_EQ(same.pushed->text(), "push_pull key=7: in and out overlap");

  const Bench::Sum good = bench.PushPull(7, 0, value, out);
  EXPECT_EQ(About(bench.Next()).round, 1U) << "refused calls take no round";
  EXPECT_EQ(good.pulled->calls, 0);
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, ATensorOfTooManyPartitionsIsRefusedBeforeItIsCut) {
  std::vector<std::byte> value = Bytes(64, 0);
  Bench bench(Alone());
  // No memory of this size is read: the check comes first.
  const std::span<std::byte> huge(value.data(), size_t{1} << 60U);
  const Outcome* const refused = bench.Broadcast(7, DType::kFloat32, huge);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(refused->code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(refused->text(),
                  "broadcast key=7: 1152921504606846976 bytes in partitions of 64 bytes are more "
                  "than 16777216 partitions; raise BYTESCHEDULER_PARTITION");
  bench.Initialise(7, value);
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, ATooLongDescriptionConcernsOnlyThatCall) {
  std::vector<std::byte> value = Bytes(64, 0);
  Bench bench(Alone());
  Outcome outcome;
  bench.worker()->BroadcastWhole(7, {DType::kFloat32, std::string(1025, 'a'), true}, value,
                                 [&](Status status) { outcome = {1, std::move(status)}; });
  EXPECT_TRUE(bench.Quiet());
  EXPECT_SNAPSHOT(outcome.text(),
                  "broadcast key=7: 1025 bytes about the key, at most 1024 are kept");
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, ARateThatIsNotFiniteConcernsOnlyThatCall) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::byte> value = Bytes(64, 0);
  const std::vector<std::byte> in = Bytes(64, 1);
  Bench bench(Alone());
  InitialiseAsync(&bench, 7, value);
  for (const PushRates& rates :
       {PushRates{kNan, {}, {}}, PushRates{{}, kNan, {}}, PushRates{{}, {}, kNan}}) {
    Outcome outcome;
    bench.worker()->Update(7, {.rates = rates, .in = in, .pushed = [&](Status status) {
                                 outcome = {1, std::move(status)};
                               }});
    EXPECT_TRUE(bench.Quiet());
    EXPECT_SNAPSHOT(outcome.text(),
                    "push_pull key=7: learning_rate, wd and rescale_grad must be finite");
  }
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, RefusedRequestFailsTheWorkerForGood) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  std::vector<std::byte> other_out = Bytes(64, 0);
  std::vector<std::byte> last_out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  bench.Initialise(8, value);
  bench.Initialise(9, value);
  const Bench::Sum first = bench.PushPull(7, 0, value, out);
  const Bench::Sum second = bench.PushPull(8, 0, value, other_out);
  const Bench::Sum queued = bench.PushPull(9, 0, value, last_out);  // the credit is in use
  const Bench::Sum waits = bench.PushPull(7, 0, value, out);
  ps::Message push = bench.Next();
  bench.Next();
  ps::Message held = bench.Next();  // the network still has it
  bench.Refuse(std::move(push), Status::Unavailable("lost worker 1"));
  ASSERT_EQ(bench.failures.size(), 1U);
  EXPECT_EQ(bench.failures[0].message(), "lost worker 1");
  for (const Outcome* outcome : {first.pushed, first.pulled, queued.pushed, queued.pulled,
                                 waits.pushed, waits.pulled, second.pulled}) {
    EXPECT_EQ(outcome->text(), "lost worker 1");
    EXPECT_TRUE(outcome->worker_had_failed) << "a caller that closes now must see it";
  }
  EXPECT_EQ(second.pushed->calls, 0) << "its memory is still in use";
  held = {};
  bench.Run();
  EXPECT_EQ(second.pushed->text(), "lost worker 1");
  const Bench::Sum late = bench.PushPull(8, 0, value, other_out);
  EXPECT_TRUE(bench.Quiet() || bench.sent.size() == 1);
  EXPECT_EQ(late.pulled->text(), "lost worker 1");
  EXPECT_EQ(bench.failures.size(), 1U);
}

TEST(Worker, FailFromOutsideEndsEverythingWithItsWords) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  bench.Run();
  bench.sent.clear();
  bench.worker()->Fail(Status::Unavailable("lost server 0"));
  bench.worker()->Fail(Status::Unavailable("lost server 1"));
  bench.Run();
  EXPECT_EQ(sum.pushed->text(), "lost server 0");
  EXPECT_EQ(sum.pulled->text(), "lost server 0");
  EXPECT_TRUE(bench.failures.empty()) << "the owner knows";
}

TEST(Worker, FailAfterEveryAcknowledgementEndsThePulls) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 5);
  Bench bench(Alone());
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  bench.Answer(bench.Next());
  ps::Message pull = bench.Next();
  bench.worker()->Fail(Status::Unavailable("lost server 0"));
  bench.Run();
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_EQ(sum.pulled->text(), "lost server 0");
  bench.Answer(std::move(pull), Bytes(64, 9));
  EXPECT_EQ(out, Bytes(64, 5)) << "written after its callback";
}

TEST(Worker, ClosedWhenNoMemoryIsInUseAnyMore) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  ps::Message push = bench.Next();
  const bool* const closed = bench.Close();
  bench.Run();
  EXPECT_FALSE(*closed);
  EXPECT_EQ(sum.pushed->calls, 0);
  push = {};
  bench.Run();
  EXPECT_TRUE(*closed);
  EXPECT_EQ(sum.pushed->code(), StatusCode::kCancelled);
  EXPECT_EQ(sum.pulled->code(), StatusCode::kCancelled);
  bench.sent.clear();
  const Outcome* const late = bench.Broadcast(9, DType::kInt8, value);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(late->code(), StatusCode::kCancelled);
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, TheSumIsMultipliedAsItArrives) {
  std::vector<float> value(20, 0);
  const std::vector<float> in(20, 1);
  std::vector<float> out(20, 0);
  Bench bench(Alone());
  bench.Initialise(7, std::as_writable_bytes(std::span(value)));
  Outcome pulled;
  bench.worker()->PushPull(
      7, {.factor = 0.25}, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)),
      [](const Status&) {}, [&](Status status) { pulled = {pulled.calls + 1, std::move(status)}; });
  const std::vector<float> sum(16, 6);
  ps::Message push = bench.Next();
  EXPECT_EQ(push.data.at(0).bytes().data(), std::as_bytes(std::span(in)).data()) << "not before";
  bench.Answer(std::move(push));
  bench.Answer(bench.Next(), std::as_bytes(std::span(sum)));
  EXPECT_EQ(out[0], 1.5F) << "each partition for itself";
  bench.Answer(bench.Next());
  bench.Answer(bench.Next(), std::as_bytes(std::span(sum).first(4)));
  EXPECT_TRUE(pulled.ok());
  EXPECT_EQ(out, std::vector<float>(20, 1.5F));
}

TEST(Worker, SumsOfIntegersAreNotMultiplied) {
  std::vector<std::byte> value = Bytes(64, 0);
  const std::vector<std::byte> in = Bytes(64, 1);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(Alone());
  bench.Initialise(7, value, DType::kInt32);
  const auto refusal = [&](double factor) {
    std::string text;
    bench.worker()->PushPull(
        7, {.factor = factor}, in, out, [](const Status&) {},
        [&](const Status& status) { text = status.message(); });
    bench.Run();
    return text;
  };
  EXPECT_SNAPSHOT(
      refusal(0.5),
      "push_pull key=7: a sum of int32 cannot be multiplied by 0.500000, only one of floating "
      "point; ask for the sum and divide it");
  EXPECT_SNAPSHOT(
      refusal(0),
      "push_pull key=7: a sum cannot be multiplied by 0.000000, only by a finite number that "
      "is not 0");
  EXPECT_TRUE(bench.Quiet());
  EXPECT_TRUE(bench.failures.empty());
}

TEST(Worker, EmptyTensorTakesPartInRounds) {
  Bench bench(Alone());
  bench.Initialise(7, {});
  const Bench::Sum sum = bench.PushPull(7, 0, {}, {});
  ps::Message push = bench.Next();
  EXPECT_EQ(About(push).op, ps::Op::kPush);
  EXPECT_TRUE(push.data.empty());
  bench.Answer(std::move(push));
  bench.Answer(bench.Next());
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
}

TEST(Worker, TwoInOneProcessDoNotMeet) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench a(Alone());
  Bench b(Alone());
  a.Initialise(7, value);
  const Bench::Sum sum = b.PushPull(7, 0, value, out);
  EXPECT_TRUE(b.Quiet());
  EXPECT_EQ(sum.pulled->code(), StatusCode::kFailedPrecondition);
}

// The servers to which the first pushes of a tensor of 16 partitions go, while none answers.
std::vector<int32_t> ServersInOrder(std::vector<uint32_t> weights,
                                    const job::View& view = job::MakeView({}, 1, 2)) {
  PsWorkerOptions options = Alone();
  options.SetView(view);
  options.server_weights = std::move(weights);
  options.partition_bytes = 32 << 10;
  options.credit_bytes = 1 << 20;
  const size_t size = 16 * options.partition_bytes;
  std::vector<std::byte> value = Bytes(size, 0);
  const std::vector<std::byte> in = Bytes(size, 1);
  std::vector<std::byte> out = Bytes(size, 0);
  std::vector<int32_t> servers;
  Bench bench(options);
  bench.Initialise(7, value);
  bench.PushPull(7, 0, in, out);
  bench.Run();
  for (const ps::Message& message : bench.sent) {
    if (About(message).op == ps::Op::kPush) servers.push_back(message.peer);
  }
  return servers;
}

TEST(Worker, ServersAdvanceByTheSharesThatTheBackEndSays) {
  const int32_t first = ps::ServerId(0);
  const int32_t second = ps::ServerId(1);
  EXPECT_EQ(ServersInOrder({1, 1}),
            (std::vector<int32_t>{first, second, first, second, first, second, first, second, first,
                                  second, first, second, first, second, first, second}));
  // Three quarters go to the first server, and at no time is the second one far ahead of a quarter.
  EXPECT_EQ(ServersInOrder({3, 1}),
            (std::vector<int32_t>{first, second, first, second, first, first, second, first, first,
                                  first, second, first, first, first, first, first}));
}

TEST(Worker, AServerOnItsHostWaitsForNoOtherServer) {
  job::View view = job::MakeView({}, 1, 2);
  view.hosts.resize(1);
  view.workers[0].host = view.servers[1].host = 0;
  const int32_t first = ps::ServerId(0);
  const int32_t second = ps::ServerId(1);
  EXPECT_EQ(ServersInOrder({3, 1}, view),
            (std::vector<int32_t>{first, second, first, second, first, second, first, second, first,
                                  first, first, first, first, first, first, first}));
}

}  // namespace
}  // namespace bs::worker
