// The events that a worker records.
#include "trace/spans.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_before.h"
#include "protocol/bodies.h"
#include "sim/sim_executor.h"
#include "worker/bench.h"

namespace bs::trace {
namespace {

using std::chrono::milliseconds;
using Kind = TraceEvent::Kind;

std::vector<TraceEvent> TakeAll(Trace* trace) {
  std::vector<TraceEvent> events;
  TraceEvent event;
  while (trace->Take(&event)) events.push_back(event);
  return events;
}

std::vector<TraceEvent> Only(Kind kind, const std::vector<TraceEvent>& events) {
  std::vector<TraceEvent> of_kind;
  for (const TraceEvent& event : events) {
    if (event.kind == kind) of_kind.push_back(event);
  }
  return of_kind;
}

worker::PsWorkerOptions Traced(Trace* trace) {
  worker::PsWorkerOptions options;
  options.partition_bytes = 64;
  options.credit_bytes = 64;
  options.trace = trace;
  options.carriers = [](int32_t peer) {
    EXPECT_EQ(peer, ps::ServerId(0));
    return Carriers{.to = Carrier::kRdma, .from = Carrier::kTcp};
  };
  return options;
}

// Two partitions, one after the other; each acknowledged after 2 ms and summed after 5.
std::vector<TraceEvent> OneRound(float threshold = 0) {
  Trace trace(64);
  std::vector<std::byte> value = worker::Bytes(threshold == 0 ? 128 : 128 * 16, 0);
  std::vector<std::byte> out = value;
  worker::PsWorkerOptions options = Traced(&trace);
  options.partition_bytes = value.size() / 2;
  worker::Bench bench(options);
  bench.Initialise(7, value);
  TakeAll(&trace);
  bench.PushPull(7, -3, value, out, threshold);
  for (int part = 0; part < 2; ++part) {
    ps::Message push = bench.Next();
    ps::Message pull = bench.Next();
    bench.RunFor(milliseconds(2));
    bench.Answer(std::move(push));
    bench.RunFor(milliseconds(3));
    bench.Answer(std::move(pull), worker::Bytes(value.size() / 2, 1));
    bench.Run();
  }
  return TakeAll(&trace);
}

Duration Length(const TraceEvent& event) { return event.end - event.begin; }

TEST(Spans, EachPartitionIsQueuedThenPushedThenPulled) {
  const std::vector<TraceEvent> events = OneRound();
  const std::vector<TraceEvent> queued = Only(Kind::kQueued, events);
  const std::vector<TraceEvent> pushed = Only(Kind::kPush, events);
  const std::vector<TraceEvent> pulled = Only(Kind::kPull, events);
  ASSERT_EQ(queued.size(), 2U);
  ASSERT_EQ(pushed.size(), 2U);
  ASSERT_EQ(pulled.size(), 2U);
  EXPECT_EQ(Length(queued[0]), Duration::zero());
  EXPECT_EQ(Length(queued[1]), milliseconds(2));  // until the first gave its credit back
  for (uint32_t part = 0; part < 2; ++part) {
    EXPECT_EQ(queued[part].end, pushed[part].begin);
    EXPECT_EQ(pulled[part].begin, pushed[part].begin);
    EXPECT_EQ(queued[part].carrier, Carrier::kUnknown);
    EXPECT_EQ(pushed[part].carrier, Carrier::kRdma);
    EXPECT_EQ(pulled[part].carrier, Carrier::kTcp) << "each direction has its own";
    for (const TraceEvent& event : {queued[part], pushed[part], pulled[part]}) {
      EXPECT_EQ(event.key, 7U);
      EXPECT_EQ(event.round, 1U);
      EXPECT_EQ(event.partition, part);
      EXPECT_EQ(event.priority, -3);
      EXPECT_EQ(event.bytes, 64U);
    }
  }
  EXPECT_EQ(Length(pushed[0]), milliseconds(2));
  EXPECT_EQ(Length(pulled[0]), milliseconds(5));
}

TEST(Spans, ATensorLastsUntilItsSumIsThere) {
  const std::vector<TraceEvent> events = OneRound();
  const std::vector<TraceEvent> tensors = Only(Kind::kTensor, events);
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].bytes, 128U);
  EXPECT_EQ(tensors[0].begin, Only(Kind::kQueued, events)[0].begin);
  EXPECT_EQ(tensors[0].end, Only(Kind::kPull, events)[1].end);
}

TEST(Spans, AProxyLastsFromTheCallUntilTheTensorMayBegin) {
  Trace trace(64);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  std::vector<std::byte> out = value;
  worker::Bench bench(Traced(&trace));
  bench.Initialise(7, value);
  bench.RunFor(milliseconds(9));
  TakeAll(&trace);
  const auto use = [&](const PushPullOptions& options) {
    bench.worker()->PushPull(7, options, value, out, [](const Status&) {}, [](const Status&) {});
    bench.Run();
  };
  use({.priority = -3, .waited = milliseconds(4)});
  use({.priority = -3, .waited = milliseconds(1)});  // behind the first
  bench.RunFor(milliseconds(2));
  for (size_t round = 0; round < 2; ++round) {
    ps::Message push = bench.Next();
    ps::Message pull = bench.Next();
    bench.Answer(std::move(push));
    bench.Answer(std::move(pull), worker::Bytes(64, 1));
    bench.Run();
  }
  const std::vector<TraceEvent> events = TakeAll(&trace);
  const std::vector<TraceEvent> proxies = Only(Kind::kProxy, events);
  const std::vector<TraceEvent> tensors = Only(Kind::kTensor, events);
  ASSERT_EQ(proxies.size(), 2U);
  ASSERT_EQ(tensors.size(), 2U);
  for (size_t round = 0; round < 2; ++round) {
    EXPECT_EQ(proxies[round].end, tensors[round].begin);
    EXPECT_EQ(proxies[round].round, tensors[round].round);
    EXPECT_EQ(proxies[round].bytes, 64U);
  }
  EXPECT_EQ(Length(proxies[0]), milliseconds(4));
  EXPECT_EQ(Length(proxies[1]), milliseconds(3));
}

// Answers the push and the pull of 64 bytes of `key`, which are the next messages.
void Sum(worker::Bench* bench, Key key) {
  ps::Message push = bench->Next();
  ps::Message pull = bench->Next();
  EXPECT_EQ(test::RequestIn(pull).key, key);
  bench->Answer(std::move(push));
  bench->Answer(std::move(pull), worker::Bytes(64, 1));
  bench->RunFor(milliseconds(1));
}

TEST(Spans, TheTensorThatTheNextStepWaitsForFirstIsTold) {
  Trace trace(256);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  std::vector<std::byte> out = value;
  worker::Bench bench(Traced(&trace));
  for (const Key key : {1U, 2U}) bench.Initialise(key, value);
  TakeAll(&trace);
  for (int step = 0; step < 3; ++step) {
    for (const Key key : {2U, 1U}) {  // as gradients become ready
      bench.worker()->PushPull(
          key, {.priority = -static_cast<Priority>(key)}, value, out, [](const Status&) {},
          [](const Status&) {});
      bench.RunFor(milliseconds(5));
    }
    for (const Key key : {2U, 1U}) Sum(&bench, key);
  }
  const std::vector<TraceEvent> criticals = Only(Kind::kCritical, TakeAll(&trace));
  ASSERT_EQ(criticals.size(), 2U);  // the first step tells which tensor is critical
  for (const TraceEvent& critical : criticals) {
    EXPECT_EQ(critical.key, 1U);
    EXPECT_EQ(Length(critical), milliseconds(6));
  }
  EXPECT_EQ(criticals[1].round, 3U);
}

TEST(Spans, BookkeepingIsNotTheTensorThatTheNextStepWaitsForFirst) {
  Trace trace(256);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  std::vector<std::byte> out = value;
  worker::Bench bench(Traced(&trace));
  const Key book = kFirstBookkeepingKey + 5;
  for (const Key key : {Key{1}, Key{2}, book}) bench.Initialise(key, value);
  TakeAll(&trace);
  for (int step = 0; step < 3; ++step) {
    for (const Key key : {Key{2}, Key{1}, book}) {  // the book comes behind all gradients
      const Priority priority = key == book ? 100 : -static_cast<Priority>(key);
      bench.worker()->PushPull(
          key, {.priority = priority}, value, out, [](const Status&) {}, [](const Status&) {});
      bench.RunFor(milliseconds(5));
    }
    for (const Key key : {Key{2}, book, Key{1}}) Sum(&bench, key);  // the book overtakes one
  }
  const std::vector<TraceEvent> criticals = Only(Kind::kCritical, TakeAll(&trace));
  ASSERT_EQ(criticals.size(), 2U);
  for (const TraceEvent& critical : criticals) {
    EXPECT_EQ(critical.key, 1U);
    EXPECT_EQ(Length(critical), milliseconds(12));
  }
}

TEST(Spans, DecisionsOfRankZeroAreTold) {
  Trace trace(64);
  worker::Bench bench(Traced(&trace));
  bench.RunFor(milliseconds(1));
  bench.worker()->Retune(128, 256, [](const Status& status) { EXPECT_TRUE(status.ok()); });
  bench.RunFor(milliseconds(1));
  const std::vector<TraceEvent> told = Only(Kind::kDecision, TakeAll(&trace));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].round, 1U);
  EXPECT_EQ(told[0].partition_bytes, 128U);
  EXPECT_EQ(told[0].bytes, 256U);
  EXPECT_EQ(told[0].end, TimePoint() + milliseconds(1));
}

TEST(Spans, CreditIsToldWhenItIsTakenAndWhenItReturns) {
  const std::vector<TraceEvent> credit = Only(Kind::kCredit, OneRound());
  ASSERT_EQ(credit.size(), 4U);
  const std::vector<uint64_t> in_flight = {64, 0, 64, 0};
  const std::vector<uint32_t> queued = {1, 1, 0, 0};
  for (size_t i = 0; i < credit.size(); ++i) {
    EXPECT_EQ(credit[i].bytes, in_flight[i]) << i;
    EXPECT_EQ(credit[i].queued, queued[i]) << i;
  }
}

TEST(Spans, NameTheCodecWhereTheirBytesAreCodes) {
  for (const TraceEvent& event : OneRound()) EXPECT_EQ(event.coding, "");
  const std::vector<TraceEvent> events = OneRound(0.5F);
  for (const Kind kind : {Kind::kQueued, Kind::kPush, Kind::kTensor}) {
    const std::vector<TraceEvent> of_kind = Only(kind, events);
    EXPECT_FALSE(of_kind.empty());
    for (const TraceEvent& event : of_kind) EXPECT_EQ(event.coding, "2bit");
  }
  for (const TraceEvent& event : Only(Kind::kPull, events)) {
    EXPECT_EQ(event.coding, "") << "sums of two-bit gradients are plain";
  }
}

// A host whose workers add up: gradients and sums stay there as they lie in memory.
class AddingHost final : public backend::BackendBefore {
 public:
  explicit AddingHost(Executor* executor) : BackendBefore(nullptr), executor_(executor) {}

  void Prepare(Done done) override { done(Status::Ok()); }
  void Leave(const std::string& /*reason*/, Done done) override { done(Status::Ok()); }
  void Fail(const Status& /*status*/) override {}
  uint32_t num_destinations() const override { return 1; }
  uint32_t DestinationOf(Key /*key*/) const override { return 0; }
  Shares shares() const override { return {}; }
  bool AddsUp(const protocol::Tensor& /*tensor*/, const Coding& coding) const override {
    return !coding.plain();
  }
  Carriers CarriersOf(const protocol::Tensor& /*tensor*/, const Coding& /*coding*/,
                      const Partition& /*partition*/) const override {
    return {};
  }
  void Place(std::span<Partition> /*partitions*/,
             std::span<const Partition> /*replaced*/) override {}
  void Declare(const protocol::Tensor& /*tensor*/, Done done) override {
    executor_->Post([done = std::move(done)] { done(Status::Ok()); });
  }
  std::shared_ptr<void> LendSent(std::span<const std::byte> /*memory*/) override { return nullptr; }
  std::shared_ptr<void> LendFilled(std::span<std::byte> /*memory*/) override { return nullptr; }
  void Start(const protocol::Tensor& /*tensor*/, backend::Exchange exchange) override {
    backend::RefuseLater(executor_, std::move(exchange), Status::Ok());
  }
  std::optional<backend::PartitionAndCredit> TakeFitting() override { return std::nullopt; }

 private:
  Executor* const executor_;
};

TEST(Spans, NameNoCodecWhereWorkersOfAHostAddUp) {
  Trace trace(64);
  sim::SimClock clock(1);
  sim::SimExecutor executor(&clock);
  AddingHost host(&executor);
  WorkerOptions options;
  options.trace = &trace;
  Worker worker(
      options, &executor, &host, [](const Status& why) { ADD_FAILURE() << why.ToString(); },
      Logger("", LogLevel::kOff));
  const Coding bf16{.codec = 3, .sums = SumsTravel::kSame};
  std::vector<std::byte> value = worker::Bytes(1024, 0);
  std::vector<std::byte> out = value;
  worker.Broadcast(7, {.coding = bf16}, value, [](const Status&) {});
  clock.RunUntil(clock.Now());
  TakeAll(&trace);
  worker.PushPull(7, {.coding = bf16}, value, out, [](const Status&) {}, [](const Status&) {});
  clock.RunUntil(clock.Now());
  const std::vector<TraceEvent> events = TakeAll(&trace);
  for (const Kind kind : {Kind::kQueued, Kind::kPush, Kind::kPull, Kind::kTensor}) {
    const std::vector<TraceEvent> of_kind = Only(kind, events);
    ASSERT_EQ(of_kind.size(), 1U);
    EXPECT_EQ(of_kind[0].bytes, 1024U);
    EXPECT_EQ(of_kind[0].coding, "");
  }
  worker.Close([] {});
  clock.RunUntil(clock.Now());
}

TEST(Spans, OfACodedRoundThePushHasTheBytesOfItsCodes) {
  const std::vector<TraceEvent> events = OneRound(0.5F);
  EXPECT_EQ(Only(Kind::kQueued, events)[0].bytes, 64U);
  EXPECT_EQ(Only(Kind::kPush, events)[0].bytes, 64U);
  EXPECT_EQ(Only(Kind::kPull, events)[0].bytes, 1024U);
}

TEST(Spans, APushWithoutAPullIsATensorToo) {
  Trace trace(64);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  worker::Bench bench(Traced(&trace));
  bench.Initialise(7, value);  // rank 0 pushes the value
  bench.Run();
  const std::vector<TraceEvent> tensors = Only(Kind::kTensor, TakeAll(&trace));
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].round, 0U);
}

TEST(Spans, AFailedTensorLeavesNoSpan) {
  Trace trace(64);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  std::vector<std::byte> out = value;
  worker::Bench bench(Traced(&trace));
  bench.Initialise(7, value);
  TakeAll(&trace);
  bench.PushPull(7, 0, value, out);
  bench.Next();
  bench.Refuse(bench.Next(), Status::Unavailable("lost worker 1"));
  bench.Run();
  const std::vector<TraceEvent> events = TakeAll(&trace);
  EXPECT_EQ(Only(Kind::kQueued, events).size(), 1U);
  EXPECT_TRUE(Only(Kind::kPull, events).empty());
  EXPECT_TRUE(Only(Kind::kTensor, events).empty());
}

TEST(Spans, ASmallPartitionIsPushedWhenItHasLeftAndPulledWhenItsSumIsThere) {
  Trace trace(64);
  std::vector<std::byte> value = worker::Bytes(64, 0);
  std::vector<std::byte> out = value;
  worker::PsWorkerOptions options = Traced(&trace);
  options.together_bytes = 64;
  worker::Bench bench(options);
  bench.Initialise(7, value);
  TakeAll(&trace);
  bench.PushPull(7, -3, value, out);
  ps::Message request = bench.Next();
  bench.RunFor(milliseconds(2));
  request.data.clear();
  bench.RunFor(milliseconds(3));
  bench.Answer(std::move(request), value);
  const std::vector<TraceEvent> events = TakeAll(&trace);
  const std::vector<TraceEvent> pushed = Only(Kind::kPush, events);
  const std::vector<TraceEvent> pulled = Only(Kind::kPull, events);
  ASSERT_EQ(pushed.size(), 1U);
  ASSERT_EQ(pulled.size(), 1U);
  EXPECT_EQ(pushed[0].begin, pulled[0].begin);
  EXPECT_EQ(Length(pushed[0]), milliseconds(2));
  EXPECT_EQ(Length(pulled[0]), milliseconds(5));
}

}  // namespace
}  // namespace bs::trace
