// What a worker tells of itself while a tensor is on its way.
#include <gtest/gtest.h>

#include "worker/bench.h"

namespace bs::worker {
namespace {

using std::chrono::milliseconds;

double Figure(Bench* bench, const std::string& name, int32_t of = Figures::kWhole) {
  Figures figures;
  bench->worker()->Measure(&figures);
  const auto it = figures.numbers().find({name, of});
  EXPECT_NE(it, figures.numbers().end()) << name << " " << of;
  return it == figures.numbers().end() ? -1 : it->second;
}

TEST(WorkerFigures, TellWhatWaitsWhatTravelsAndWhatCame) {
  std::vector<std::byte> value = Bytes(128, 0);
  std::vector<std::byte> out = value;
  WorkerOptions options;
  options.partition_bytes = 64;
  options.credit_bytes = 64;
  Bench bench(options);
  EXPECT_EQ(Figure(&bench, "pushed_bytes_total", 0), 0);
  EXPECT_EQ(Figure(&bench, "credit_bytes"), 64);
  bench.Initialise(7, value);
  const double first = Figure(&bench, "pushed_bytes_total", 0);
  EXPECT_EQ(first, 128);
  EXPECT_EQ(Figure(&bench, "steps_total"), 0);  // the first value is none

  bench.PushPull(7, 0, value, out);
  ps::Message push = bench.Next();
  ps::Message pull = bench.Next();
  EXPECT_EQ(Figure(&bench, "in_flight_bytes", 0), 64);
  EXPECT_EQ(Figure(&bench, "queued_bytes", 0), 64);
  EXPECT_EQ(Figure(&bench, "queued_partitions", 0), 1);
  EXPECT_EQ(Figure(&bench, "pending_requests"), 2);
  const double pushing = Figure(&bench, "push_seconds_total", 0);
  bench.RunFor(milliseconds(2));
  bench.Answer(std::move(push));
  bench.RunFor(milliseconds(3));
  bench.Answer(std::move(pull), Bytes(64, 1));
  bench.Run();
  EXPECT_EQ(Figure(&bench, "pushed_bytes_total", 0), first + 64);
  EXPECT_EQ(Figure(&bench, "pulled_bytes_total", 0), 64);
  EXPECT_EQ(Figure(&bench, "pulled_partitions_total", 0), 1);
  EXPECT_NEAR(Figure(&bench, "push_seconds_total", 0) - pushing, 0.002, 1e-9);
  EXPECT_NEAR(Figure(&bench, "pull_seconds_total", 0), 0.005, 1e-9);
  EXPECT_EQ(Figure(&bench, "queued_bytes", 0), 0);
  EXPECT_EQ(Figure(&bench, "tensors_total"), 0);

  push = bench.Next();
  pull = bench.Next();
  bench.Answer(std::move(push));
  bench.Answer(std::move(pull), Bytes(64, 1));
  bench.Run();
  EXPECT_EQ(Figure(&bench, "tensors_total"), 1);
  EXPECT_EQ(Figure(&bench, "steps_total"), 1);
  EXPECT_EQ(Figure(&bench, "in_flight_bytes", 0), 0);
}

TEST(WorkerFigures, CountWhatIsSentAgain) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = value;
  WorkerOptions options;
  options.requests.retry_interval = milliseconds(10);
  Bench bench(options);
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Next();  // lost
  bench.RunFor(milliseconds(11));
  EXPECT_GE(Figure(&bench, "repeats_total", 0), 1);
  EXPECT_EQ(Figure(&bench, "pulled_partitions_total", 0), 0);
}

}  // namespace
}  // namespace bs::worker
