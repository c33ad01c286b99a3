// Exchanges of a worker: its requests, their credit, errors, deadlines and ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "protocol/exchange_terms.h"
#include "ps/text.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using test::About;

PsWorkerOptions OfTwo() {
  PsWorkerOptions options;
  options.SetView(job::MakeView({}, 2, 2));
  options.exchange_partition_bytes = 64;
  options.credit_bytes = 64;
  options.requests.retry_interval = std::chrono::seconds(1);
  return options;
}

// An exchange of this worker and worker 1, and its outcomes.
struct Exchanged {
  Outcome given;
  Outcome done;

  Worker::ExchangeCall Call(Key key, std::span<const std::byte> in, std::span<std::byte> out) {
    const auto into = [](Outcome* outcome) {
      return [outcome](Status status) { *outcome = {outcome->calls + 1, std::move(status)}; };
    };
    return {.key = key,
            .givers = {0, 1},
            .takers = {0, 1},
            .size_bytes = out.empty() ? in.size() : out.size(),
            .home = 1,
            .label = "gradients",
            .priority = 3,
            .in = in,
            .out = out,
            .given = into(&given),
            .done = into(&done)};
  }
};

TEST(WorkerExchange, GivesAndTakesPartitionsAndNotifiesThatItHasThem) {
  std::vector<std::byte> memory = Bytes(100, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  ps::Message give = bench.Next();
  ps::Message take = bench.Next();
  EXPECT_TRUE(bench.Quiet()) << "its credit is spent";
  for (const ps::Message* message : {&give, &take}) {
    EXPECT_EQ(message->peer, ps::ServerId(1)) << "its home";
    EXPECT_EQ(message->meta.priority, 3);
    EXPECT_EQ(About(*message).key, 7U);
    EXPECT_EQ(About(*message).size_bytes, 64U);
    const auto terms = protocol::DecodeTerms(About(*message).terms);
    ASSERT_TRUE(terms.ok());
    EXPECT_EQ(terms.value().label, "gradients");
    EXPECT_EQ(terms.value().size_bytes, 100U);
    EXPECT_EQ(terms.value().partition_bytes, 64U);
  }
  EXPECT_EQ(About(give).op, ps::Op::kGive);
  EXPECT_EQ(About(take).op, ps::Op::kTake);
  EXPECT_EQ(give.data.at(0).bytes().data(), memory.data()) << "the payload was copied";
  bench.Answer(std::move(give));
  ps::Message second_give = bench.Next();
  ps::Message second_take = bench.Next();
  EXPECT_EQ(About(second_give).offset_bytes, 64U);
  EXPECT_EQ(About(second_give).size_bytes, 36U);
  bench.Answer(std::move(second_give));
  EXPECT_TRUE(exchanged.given.ok());
  bench.Answer(std::move(take), Bytes(64, 8));
  EXPECT_TRUE(bench.Quiet());
  bench.RunFor(std::chrono::milliseconds(1));
  ps::Message taken = bench.Next();
  EXPECT_EQ(About(taken).op, ps::Op::kTaken);
  EXPECT_EQ(protocol::DecodeTaken(About(taken).taken).value(),
            (std::vector<protocol::TakenPartition>{{.key = 7, .partition = 0}}));
  EXPECT_EQ(exchanged.done.calls, 0);
  bench.Answer(std::move(second_take), Bytes(36, 9));
  EXPECT_TRUE(exchanged.done.ok());
  EXPECT_TRUE(bench.Quiet()) << "one notice at a time";
  bench.Answer(std::move(taken));
  ps::Message last = bench.Next();
  EXPECT_EQ(protocol::DecodeTaken(About(last).taken).value(),
            (std::vector<protocol::TakenPartition>{{.key = 7, .partition = 1}}));
  bench.Answer(std::move(last));
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(memory[0], std::byte{8});
  EXPECT_EQ(memory[99], std::byte{9});
}

TEST(WorkerExchange, ARaisedExchangeOvertakesFromItsNextPartitionOn) {
  std::vector<std::byte> large = Bytes(192, 1);
  std::vector<std::byte> small = Bytes(64, 2);
  Exchanged first;
  Exchanged raised;
  Bench bench(OfTwo());
  bench.worker()->Exchange(first.Call(7, large, large));
  bench.worker()->Exchange(raised.Call(8, small, small));
  ps::Message give = bench.Next();
  ps::Message take = bench.Next();
  EXPECT_EQ(About(give).key, 7U);
  bench.worker()->ReprioritiseExchange(8, 4);
  bench.worker()->ReprioritiseExchange(9, 5);  // there is none
  EXPECT_TRUE(bench.Quiet()) << "the credit is spent";
  bench.Answer(std::move(give));
  ps::Message urgent = bench.Next();
  EXPECT_EQ(About(urgent).key, 8U);
  EXPECT_EQ(urgent.meta.priority, 4) << "also on its way, and for its answer";
  bench.Answer(std::move(urgent));
  ps::Message urgent_take = bench.Next();
  EXPECT_EQ(About(urgent_take).key, 8U);
  bench.Answer(std::move(urgent_take), Bytes(64, 8));
  EXPECT_TRUE(raised.done.ok());
  ps::Message second = bench.Next();
  EXPECT_EQ(About(second).key, 7U);
  EXPECT_EQ(About(second).offset_bytes, 64U);
  EXPECT_EQ(second.meta.priority, 3);
  bench.Answer(std::move(second));
  bench.Answer(std::move(take), Bytes(64, 9));
  EXPECT_EQ(first.done.calls, 0);
}

TEST(WorkerExchange, ATakerAsksForAllAtNoCredit) {
  std::vector<std::byte> out = Bytes(200, 0);
  Exchanged exchanged;
  Bench bench(OfTwo());
  Worker::ExchangeCall call = exchanged.Call(7, {}, out);
  call.givers = {1};
  bench.worker()->Exchange(std::move(call));
  bench.Run();
  ASSERT_EQ(bench.sent.size(), 4U);
  EXPECT_TRUE(exchanged.given.ok()) << "there is nothing to give";
  for (int i = 0; i < 4; ++i) {
    bench.Answer(bench.Next(), Bytes(i < 3 ? 64 : 8, i));
    while (!bench.sent.empty() && About(bench.sent.back()).op == ps::Op::kTaken) {
      ps::Message told = std::move(bench.sent.back());
      bench.sent.pop_back();
      bench.Answer(std::move(told));
    }
  }
  EXPECT_TRUE(exchanged.done.ok());
  EXPECT_EQ(out[199], std::byte{3});
}

// Answers all requests, over a link that carries 64 KiB in that time.
void AnswerExchanges(Bench* bench, std::chrono::microseconds time) {
  for (bench->Run(); !bench->sent.empty(); bench->Run()) {
    ps::Message request = bench->Next();
    const test::Asked asked = About(request);
    if (asked.op == ps::Op::kGive) bench->RunFor(time);
    const bool takes = asked.op == ps::Op::kTake;
    bench->Answer(std::move(request), Bytes(takes ? asked.size_bytes : 0, 1));
  }
}

struct Link {
  int32_t rank;
  std::chrono::microseconds time;  // of 64 KiB
};

class ExchangesOfRank : public testing::TestWithParam<Link> {};

TEST_P(ExchangesOfRank, TakeTheCreditThatSuitsTheLink) {
  constexpr size_t kPartition = size_t{64} << 10U;
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = GetParam().rank}, 2, 2));
  options.measures_bandwidth = true;
  std::vector<std::byte> memory = Bytes(size_t{8} << 20U, 1);
  Exchanged first;
  Exchanged next;
  Bench bench(options);
  const auto gives_at_once = [&] {
    bench.Run();
    return std::ranges::count_if(
        bench.sent, [](const ps::Message& message) { return About(message).op == ps::Op::kGive; });
  };
  bench.worker()->Exchange(first.Call(7, memory, memory));
  EXPECT_EQ(gives_at_once(), kFirstCreditBytes / kPartition);
  EXPECT_EQ(About(bench.sent.front()).size_bytes, kPartition);
  AnswerExchanges(&bench, GetParam().time);
  EXPECT_TRUE(first.done.ok()) << first.done.text();
  bench.worker()->Exchange(next.Call(8, memory, memory));
  EXPECT_EQ(gives_at_once(), 2) << "a partition that the link carries, and the next";
}

// The slow link suits partitions of 32 KiB, twice which are one partition of an exchange.
INSTANTIATE_TEST_SUITE_P(Links, ExchangesOfRank,
                         testing::Values(Link{0, std::chrono::microseconds(500)},
                                         Link{1, std::chrono::microseconds(500)},
                                         Link{0, std::chrono::microseconds(2000)},
                                         Link{1, std::chrono::microseconds(2000)}));

TEST(WorkerExchange, AGiverEndsWhenItsBytesAreTakenUp) {
  const std::vector<std::byte> in = Bytes(64, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  Worker::ExchangeCall call = exchanged.Call(7, in, {});
  call.takers = {1};
  call.home = -1;
  bench.worker()->Exchange(std::move(call));
  bench.Answer(bench.Next());
  EXPECT_TRUE(exchanged.given.ok());
  EXPECT_TRUE(exchanged.done.ok());
  EXPECT_TRUE(bench.Quiet());
}

TEST(WorkerExchange, ASmallPartitionIsGivenAndTakenByOneRequest) {
  std::vector<std::byte> memory = Bytes(64, 1);
  Exchanged first;
  Exchanged second;
  PsWorkerOptions options = OfTwo();
  options.together_bytes = 64;
  Bench bench(options);
  bench.worker()->Exchange(first.Call(7, memory, memory));
  bench.worker()->Exchange(second.Call(8, memory, memory));
  ps::Message take = bench.Next();
  EXPECT_EQ(About(take).op, ps::Op::kTake);
  EXPECT_EQ(take.data.at(0).bytes().data(), memory.data());
  EXPECT_TRUE(bench.Quiet()) << "the credit is in the network";
  take.data.clear();
  ps::Message second_take = bench.Next();
  EXPECT_EQ(About(second_take).key, 8U);
  EXPECT_EQ(first.given.calls, 0) << "a repeat would send the memory again";
  bench.Answer(std::move(take), Bytes(64, 5));
  EXPECT_TRUE(first.given.ok());
  EXPECT_TRUE(first.done.ok());
  EXPECT_EQ(memory[63], std::byte{5});
  bench.Refuse(std::move(second_take), Status::Cancelled("abort"));
  EXPECT_EQ(second.given.code(), StatusCode::kCancelled);
  EXPECT_EQ(second.done.code(), StatusCode::kCancelled);
  EXPECT_TRUE(bench.failures.empty());
}

TEST(WorkerExchange, CallsThatMakeNoSenseFailAlone) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged first;
  Bench bench(OfTwo());
  const auto text = [&](void (*change)(Worker::ExchangeCall*)) {
    Exchanged exchanged;
    Worker::ExchangeCall call = exchanged.Call(7, memory, memory);
    change(&call);
    bench.worker()->Exchange(std::move(call));
    EXPECT_TRUE(bench.Quiet());
    EXPECT_EQ(exchanged.done.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(exchanged.given.code(), StatusCode::kInvalidArgument);
    return exchanged.done.text();
  };
  EXPECT_SNAPSHOT(text([](auto* call) {
                    call->givers = {2};
                    call->takers = {0};
                  }),
                  R"snap(exchange 'gradients': rank 2 of only 2 workers)snap");
  EXPECT_SNAPSHOT(text([](auto* call) { call->givers = call->takers = {1}; }),
                  R"snap(exchange 'gradients': worker 0 neither gives nor takes)snap");
  EXPECT_SNAPSHOT(text([](auto* call) { call->out = {}; }),
                  R"snap(exchange 'gradients': memory of 8 bytes in and 0 out, want 8)snap");
  EXPECT_SNAPSHOT(
      text([](auto* call) { call->takers = {}; }),
      R"snap(exchange 'gradients': an exchange needs a giver and a taker, and names each rank once, in order)snap");
  bench.worker()->Exchange(first.Call(7, memory, memory));
  bench.Run();
  bench.sent.clear();
  EXPECT_SNAPSHOT(text([](auto*) {}),
                  R"snap(exchange 'gradients': its key 7 is in use already)snap");
  EXPECT_TRUE(bench.failures.empty());
}

TEST(WorkerExchange, ARefusalEndsItAloneAndQuitsItsOtherPartitions) {
  std::vector<std::byte> memory = Bytes(200, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  ps::Message give = bench.Next();
  ps::Message take = bench.Next();
  const Status differs = Status::InvalidArgument("workers call different exchanges");
  bench.Refuse(std::move(give), differs);
  ps::Message quit = bench.Next();
  EXPECT_EQ(About(quit).op, ps::Op::kQuit);
  EXPECT_EQ(About(quit).key, 7U);
  bench.Answer(std::move(quit));
  EXPECT_EQ(exchanged.given.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(exchanged.done.calls, 0);
  bench.Refuse(std::move(take), differs);
  EXPECT_EQ(exchanged.done.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(exchanged.done.text(), differs.message());
  EXPECT_TRUE(bench.failures.empty());
  EXPECT_TRUE(bench.Quiet());
}

// Returns the failures of the worker whose take is refused by that status.
size_t FailuresBehind(const Status& refusal) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  bench.Answer(bench.Next());
  bench.Refuse(bench.Next(), refusal);
  EXPECT_EQ(exchanged.done.code(), refusal.code());
  EXPECT_EQ(exchanged.done.text(), refusal.message());
  return bench.failures.size();
}

TEST(WorkerExchange, ALostPeerFailsTheWorker) {
  EXPECT_EQ(FailuresBehind(Status::Unavailable("lost worker 1")), 1U);
}

TEST(WorkerExchange, APeerThatLeftEndsTheExchangeAlone) {
  EXPECT_EQ(FailuresBehind(ps::LeftStatus(ps::WorkerId(1), "")), 0U);
}

TEST(WorkerExchange, APeerThatGaveUpFailsTheWorker) {
  EXPECT_EQ(FailuresBehind(ps::LeftStatus(ps::WorkerId(1), "KeyError: 'x'")), 1U);
}

TEST(WorkerExchange, AnAnswerOfAnotherSizeFailsTheWorker) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  bench.Answer(bench.Next());
  bench.Answer(bench.Next(), Bytes(7, 1));
  EXPECT_EQ(exchanged.done.code(), StatusCode::kInternal);
  EXPECT_SNAPSHOT(exchanged.done.text(),
                  R"snap(take key=7 partition=0 to server 1: answered 7 bytes, want 8)snap");
}

TEST(WorkerExchange, QuitsAtItsDeadlineAndWhenItIsTold) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged late;
  Exchanged told;
  Bench bench(OfTwo());
  Worker::ExchangeCall call = late.Call(7, memory, memory);
  call.timeout = std::chrono::milliseconds(500);
  bench.worker()->Exchange(std::move(call));
  bench.Answer(bench.Next());
  ps::Message take = bench.Next();
  bench.RunFor(std::chrono::milliseconds(499));
  EXPECT_TRUE(bench.Quiet());
  bench.RunFor(std::chrono::milliseconds(1));
  ps::Message quit = bench.Next();
  EXPECT_EQ(About(quit).status, static_cast<uint32_t>(StatusCode::kDeadlineExceeded));
  EXPECT_SNAPSHOT(About(quit).text,
                  R"snap(exchange 'gradients': worker 0 has waited for 500 ms)snap");
  bench.Refuse(std::move(take), Status::DeadlineExceeded("500 ms"));
  bench.Answer(std::move(quit));
  EXPECT_EQ(late.done.code(), StatusCode::kDeadlineExceeded);
  bench.worker()->Exchange(told.Call(8, memory, memory));
  bench.worker()->QuitExchange(8, "abort");
  bench.worker()->QuitExchange(9, "of none");
  ps::Message second_quit = bench.Next();
  EXPECT_EQ(About(second_quit).text, "abort");
  EXPECT_EQ(About(second_quit).key, 8U);
  bench.Answer(std::move(second_quit));
  for (int i = 0; i < 2; ++i) bench.Refuse(bench.Next(), Status::Cancelled("abort"));
  EXPECT_EQ(told.done.code(), StatusCode::kCancelled);
  EXPECT_TRUE(bench.failures.empty());
}

TEST(WorkerExchange, AServerThatAnswersNothingBehindTheDeadlineFailsTheWorker) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged late;
  Bench bench(OfTwo());
  Worker::ExchangeCall call = late.Call(7, memory, memory);
  call.timeout = std::chrono::milliseconds(500);
  bench.worker()->Exchange(std::move(call));
  ps::Message give = bench.Next();
  ps::Message take = bench.Next();
  bench.RunFor(std::chrono::milliseconds(5499));
  EXPECT_TRUE(bench.failures.empty());
  bench.RunFor(std::chrono::milliseconds(1));
  ASSERT_EQ(bench.failures.size(), 1U);
  EXPECT_EQ(bench.failures[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_SNAPSHOT(
      bench.failures[0].message(),
      R"snap(exchange 'gradients': worker 0 has waited for 500 ms, and server 1 has not answered for 5 s more: its process is stopped, or its host is cut off)snap");
  EXPECT_EQ(late.done.calls, 0) << "the server may still answer into the memory";
  bench.Refuse(std::move(give), Status::Unavailable("the worker has failed"));
  bench.Refuse(std::move(take), Status::Unavailable("the worker has failed"));
  EXPECT_EQ(late.done.code(), StatusCode::kDeadlineExceeded);
  bench.sent.clear();
}

TEST(WorkerExchange, WaitsForOtherWorkersUntilItsOwnDeadline) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged exchanged;
  PsWorkerOptions options = OfTwo();
  options.requests.straggler_timeout = std::chrono::seconds(2);
  Bench bench(options);
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  bench.Answer(bench.Next());
  ps::Message take = bench.Next();
  for (int i = 0; i < 10; ++i) {
    bench.RunFor(std::chrono::seconds(1));
    bench.sent.clear();
    ps::Message waits = Bench::ResponseTo(take);
    waits.meta.extension.op = ps::Op::kPending;
    bench.Tell(std::move(waits));
  }
  EXPECT_EQ(exchanged.done.calls, 0);
  EXPECT_TRUE(bench.failures.empty());
  bench.Answer(std::move(take), Bytes(8, 2));
  EXPECT_TRUE(exchanged.done.ok());
}

TEST(WorkerExchange, AFullServerEndsItAloneOnAllWorkers) {
  std::vector<std::byte> memory = Bytes(64, 1);
  Exchanged exchanged;
  Bench bench(OfTwo());
  Worker::ExchangeCall call = exchanged.Call(7, memory, {});
  call.takers = {1};
  bench.worker()->Exchange(std::move(call));
  bench.Refuse(bench.Next(), Status::ResourceExhausted("no memory"));
  EXPECT_EQ(exchanged.done.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(bench.failures.empty());
  ps::Message quit = bench.Next();
  EXPECT_EQ(About(quit).op, ps::Op::kQuit);
  bench.Answer(std::move(quit));
}

TEST(WorkerExchange, ANoticeComesAgainUntilTheServerHasIt) {
  std::vector<std::byte> memory = Bytes(8, 1);
  Exchanged exchanged;
  PsWorkerOptions options = OfTwo();
  options.requests.timeout = std::chrono::seconds(3);
  Bench bench(options);
  bench.worker()->Exchange(exchanged.Call(7, memory, memory));
  bench.Answer(bench.Next());
  bench.Answer(bench.Next(), Bytes(8, 2));
  bench.RunFor(std::chrono::milliseconds(1));
  ps::Message lost = bench.Next();
  EXPECT_EQ(lost.meta.priority, std::numeric_limits<Priority>::max());
  bench.RunFor(std::chrono::milliseconds(3900));
  bench.sent.clear();
  bench.RunFor(std::chrono::milliseconds(200));
  ps::Message notice = bench.Next();
  EXPECT_GT(notice.meta.extension.sequence, lost.meta.extension.sequence);
  EXPECT_EQ(protocol::DecodeTaken(About(notice).taken).value().size(), 1U);
  bench.Answer(std::move(notice));
  bench.RunFor(std::chrono::seconds(10));
  EXPECT_TRUE(bench.Quiet());
  EXPECT_TRUE(bench.failures.empty());
}

TEST(WorkerExchange, PartitionsBehindTheCreditEndWhenItQuits) {
  std::vector<std::byte> memory = Bytes(64, 1);
  Exchanged first;
  Exchanged second;
  Bench bench(OfTwo());
  bench.worker()->Exchange(first.Call(7, memory, memory));
  bench.worker()->Exchange(second.Call(8, memory, memory));
  ps::Message give = bench.Next();
  ps::Message take = bench.Next();
  EXPECT_TRUE(bench.Quiet());
  bench.worker()->QuitExchange(8, "abort");
  ps::Message quit = bench.Next();
  EXPECT_EQ(quit.meta.priority, std::numeric_limits<Priority>::max());
  bench.Answer(std::move(quit));
  EXPECT_EQ(second.done.code(), StatusCode::kCancelled) << "it waits for no credit";
  bench.Answer(std::move(give));
  bench.Answer(std::move(take), Bytes(64, 2));
  EXPECT_TRUE(first.done.ok());
}

}  // namespace
}  // namespace bs::worker
