// What a shard counts, and what a whole server makes of it.
#include "server/state/counters.h"

#include <gtest/gtest.h>

#include <optional>

#include "server/bench.h"
#include "sim/coded/slow_codec.h"

namespace bs::server {
namespace {

// Two workers, two shards and the dispatcher, which keeps partitions of up to 8 bytes.
class CountersBench : public ServerBench {
 public:
  CountersBench() : ServerBench(MakeOptions(), 2) {}

  void Do(Ask ask, uint64_t key) {
    ask.key = key;
    Post(ask);
    Pass(Duration(0));
  }
  double Figure(const std::string& name, int32_t of = Metrics::kWhole) {
    std::optional<Metrics> told;
    server().Measure([&](const Metrics& metrics) { told = metrics; });
    EXPECT_FALSE(told.has_value()) << "told inside the call";
    Pass(Duration(0));
    if (!told) return -1;
    const auto it = told->numbers().find({name, of});
    return it == told->numbers().end() ? -1 : it->second;
  }

 private:
  static ServerOptions MakeOptions() {
    ServerOptions options;
    options.view = job::ShareView({.role = job::Role::kServer}, 2, 1);
    options.dispatcher_bytes = 8;
    options.timed = true;
    return options;
  }
};

std::vector<std::byte> Small() { return Floats({1, 2}); }
std::vector<std::byte> Large() { return Floats({1, 2, 3, 4}); }

TEST(Counters, OfAServerThatDidNothingAreZero) {
  CountersBench bench;
  for (const char* const name : {"partitions", "rounds_total", "open_rounds", "refused_total",
                                 "value_bytes", "held_bytes"}) {
    EXPECT_EQ(bench.Figure(name), 0) << name;
  }
  EXPECT_EQ(bench.Figure("pushed_bytes_total", 1), 0);
}

TEST(Counters, AddUpOverShardsAndDispatcher) {
  CountersBench bench;
  const std::vector<std::pair<uint64_t, std::vector<std::byte>>> values = {
      {1, Small()}, {2, Large()}, {3, Large()}};
  for (const auto& [key, value] : values) {
    bench.Do(Push(0, 0, value), key);
    bench.Do(Push(0, 1, value), key);
    bench.Do(Pull(0, 1, value.size()), key);
  }
  EXPECT_EQ(bench.Figure("partitions"), 3);
  EXPECT_EQ(bench.Figure("pushes_total", 0), 6);
  EXPECT_EQ(bench.Figure("pushed_bytes_total", 0), 2 * (8 + 16 + 16));
  EXPECT_EQ(bench.Figure("open_rounds"), 3);
  EXPECT_EQ(bench.Figure("awaited_rounds", 0), 0);
  EXPECT_EQ(bench.Figure("awaited_rounds", 1), 3);
  EXPECT_EQ(bench.Figure("pulls_total", 0), 0);
  bench.Pass(std::chrono::milliseconds(7));
  for (const auto& [key, value] : values) bench.Do(Push(1, 1, value), key);
  EXPECT_EQ(bench.Figure("rounds_total"), 3);
  EXPECT_EQ(bench.Figure("open_rounds"), 0);
  EXPECT_EQ(bench.Figure("awaited_rounds", 1), 0);
  EXPECT_EQ(bench.Figure("came_last_total", 1), 3);
  EXPECT_EQ(bench.Figure("came_last_total", 0), 0);
  EXPECT_NEAR(bench.Figure("waited_seconds_total", 1), 3 * 0.007, 1e-9);
  EXPECT_EQ(bench.Figure("waited_seconds_total", 0), 0);
  EXPECT_EQ(bench.Figure("pulled_bytes_total", 0), 8 + 16 + 16);
  EXPECT_EQ(bench.Figure("value_bytes"), 2 * (8 + 16 + 16));
}

TEST(Counters, CountRefusalsOfDispatcherAndShards) {
  CountersBench bench;
  bench.Do(Push(0, 5, Large()), 1);  // nobody initialised it
  EXPECT_EQ(bench.Figure("refused_total"), 1);
  bench.Do(Push(0, 0, Large()), 1);
  bench.Do(Push(0, 9, Large()), 1);  // far ahead
  EXPECT_EQ(bench.Figure("refused_total"), 2);
  EXPECT_EQ(bench.Figure("pushes_total", 0), 1);
}

TEST(Counters, OfAsynchronousKeysCountPushesAndNoRounds) {
  CountersBench bench;
  Ask first = Push(0, 0, Large());
  first.mode = Mode::kAsynchronous;
  bench.Do(first, 1);
  EXPECT_EQ(bench.Figure("pushes_total", 0), 1);
  EXPECT_EQ(bench.Figure("value_bytes"), 16);
  EXPECT_EQ(bench.Figure("rounds_total"), 0);
  EXPECT_EQ(bench.Figure("awaited_rounds", 1), 0);
}

TEST(Counters, CodingSecondsCountCodedRoundsAlone) {
  using Slow = sim::SlowBf16<sim::SimClock>;
  const codec::Table codecs({Slow::Row()});
  SlotBench bench(2);
  bench.state.codecs = &codecs;
  bench.state.timed = true;
  const auto seconds = [&bench] {
    Metrics metrics;
    bench.state.counters.Measure(&metrics);
    return metrics.numbers().at({"coding_seconds_total", Metrics::kWhole});
  };
  for (const uint64_t round : {0U, 1U}) bench.Round(round, {1, 2, 3});
  EXPECT_EQ(seconds(), 0);
  for (const int32_t rank : {0, 1}) {
    Ask push = Push(rank, 2, std::vector<std::byte>(6));
    push.size_bytes = 12;
    push.coding = Slow::Coding(&bench.clock);
    bench.DoOk(push);
    bench.Pass(std::chrono::milliseconds(500));
    // The second is added to the first, and then the sum is coded.
    EXPECT_NEAR(seconds(), rank == 0 ? 0.002 : 0.037, 1e-9);
  }
}

}  // namespace
}  // namespace bs::server
