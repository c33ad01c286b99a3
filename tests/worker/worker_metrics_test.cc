// The metrics of a worker while a tensor is on its way.
#include <gtest/gtest.h>

#include "protocol/bodies.h"
#include "sim/coded/slow_codec.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using std::chrono::milliseconds;

double Metric(Bench* bench, const std::string& name, int32_t of = Metrics::kWhole) {
  Metrics metrics;
  bench->worker()->Measure(&metrics);
  const auto it = metrics.numbers().find({name, of});
  EXPECT_NE(it, metrics.numbers().end()) << name << " " << of;
  return it == metrics.numbers().end() ? -1 : it->second;
}

TEST(WorkerMetrics, TellQueuedInFlightAndReceivedBytes) {
  std::vector<std::byte> value = Bytes(128, 0);
  std::vector<std::byte> out = value;
  PsWorkerOptions options;
  options.partition_bytes = 64;
  options.credit_bytes = 64;
  Bench bench(options);
  EXPECT_EQ(Metric(&bench, "pushed_bytes_total", 0), 0);
  EXPECT_EQ(Metric(&bench, "credit_bytes"), 64);
  bench.Initialise(7, value);
  const double first = Metric(&bench, "pushed_bytes_total", 0);
  EXPECT_EQ(first, 128);
  EXPECT_EQ(Metric(&bench, "steps_total"), 0);  // the first value is none

  bench.PushPull(7, 0, value, out);
  ps::Message push = bench.Next();
  ps::Message pull = bench.Next();
  EXPECT_EQ(Metric(&bench, "in_flight_bytes", 0), 64);
  EXPECT_EQ(Metric(&bench, "queued_bytes", 0), 64);
  EXPECT_EQ(Metric(&bench, "queued_partitions", 0), 1);
  EXPECT_EQ(Metric(&bench, "pending_requests"), 2);
  const double pushing = Metric(&bench, "push_seconds_total", 0);
  bench.RunFor(milliseconds(2));
  bench.Answer(std::move(push));
  bench.RunFor(milliseconds(3));
  bench.Answer(std::move(pull), Bytes(64, 1));
  bench.Run();
  EXPECT_EQ(Metric(&bench, "pushed_bytes_total", 0), first + 64);
  EXPECT_EQ(Metric(&bench, "pulled_bytes_total", 0), 64);
  EXPECT_EQ(Metric(&bench, "pulled_partitions_total", 0), 1);
  EXPECT_NEAR(Metric(&bench, "push_seconds_total", 0) - pushing, 0.002, 1e-9);
  EXPECT_NEAR(Metric(&bench, "pull_seconds_total", 0), 0.005, 1e-9);
  EXPECT_EQ(Metric(&bench, "queued_bytes", 0), 0);
  EXPECT_EQ(Metric(&bench, "tensors_total"), 0);

  push = bench.Next();
  pull = bench.Next();
  bench.Answer(std::move(push));
  bench.Answer(std::move(pull), Bytes(64, 1));
  bench.Run();
  EXPECT_EQ(Metric(&bench, "tensors_total"), 1);
  EXPECT_EQ(Metric(&bench, "steps_total"), 1);
  EXPECT_EQ(Metric(&bench, "in_flight_bytes", 0), 0);
}

TEST(WorkerMetrics, CodingSecondsCountCodedRoundsAlone) {
  using Slow = sim::SlowBf16<Bench>;
  const codec::Table codecs({Slow::Row()});
  const std::vector<std::byte> codes = Bytes(6, 0);
  std::vector<std::byte> value = Bytes(12, 0);
  std::vector<std::byte> out = value;
  PsWorkerOptions options;
  options.codecs = &codecs;
  Bench bench(options);
  const Coding coding = Slow::Coding(&bench);
  bench.Initialise(7, value);
  bench.worker()->Broadcast(8, {.coding = coding}, value, [](const Status&) {});
  for (bench.Run(); !bench.sent.empty(); bench.Run()) bench.Answer(bench.Next());
  bench.PushPull(7, 0, value, out);
  bench.Answer(bench.Next());
  bench.Answer(bench.Next(), value);
  EXPECT_EQ(Metric(&bench, "tensors_total"), 1);
  EXPECT_EQ(Metric(&bench, "coding_seconds_total"), 0) << "both rounds were plain";

  bench.worker()->PushPull(
      8, {.coding = coding}, value, out, [](const Status&) {}, [](const Status&) {});
  bench.Answer(bench.Next());
  EXPECT_NEAR(Metric(&bench, "coding_seconds_total"), 0.030, 1e-9);
  const ps::Message pull = bench.Next();
  bench.RunFor(milliseconds(500));
  ps::Message answer = Bench::ResponseTo(pull);
  test::ChangeResponse(&answer, [&](auto* body) { body->coding = codecs.OfSums(coding); });
  answer.data.push_back(ps::Frame::Copy(codes));
  bench.Tell(std::move(answer));
  EXPECT_EQ(Metric(&bench, "tensors_total"), 2);
  EXPECT_NEAR(Metric(&bench, "coding_seconds_total"), 0.032, 1e-9);
}

TEST(WorkerMetrics, CountRepeatedRequests) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = value;
  PsWorkerOptions options;
  options.requests.retry_interval = milliseconds(10);
  Bench bench(options);
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Next();  // lost
  bench.RunFor(milliseconds(11));
  EXPECT_GE(Metric(&bench, "repeats_total", 0), 1);
  EXPECT_EQ(Metric(&bench, "pulled_partitions_total", 0), 0);
}

}  // namespace
}  // namespace bs::worker
