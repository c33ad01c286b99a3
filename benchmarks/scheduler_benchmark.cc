// How many scheduling decisions a second one core makes, by depth of the queue.
//
// A decision is one partition submitted, started and acknowledged: Submit + Next + Return.  Hold
// keeps the queue at the given depth (new items then tend to overtake the old ones); Drain fills it
// to the depth and empties it, so that every item waits.  Goal: at least 1,000,000 decisions a
// second at depth 4096 on one core.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "bytescheduler/core.h"
#include "core/scheduler.h"

namespace {

using bs::Priority;
using bs::core::Scheduler;

constexpr size_t kDraws = 1 << 16;  // a power of two: draws are used round and round

// What a model's layers have: the negated index of one of 500 layers.
std::vector<Priority> LayerPriorities() {
  std::mt19937 random(1);
  std::vector<Priority> draws(kDraws);
  for (Priority& draw : draws) draw = -static_cast<Priority>(random() % 500);
  return draws;
}

// The worst there is: any int32.
std::vector<Priority> AnyPriorities() {
  std::mt19937 random(1);
  std::vector<Priority> draws(kDraws);
  for (Priority& draw : draws) draw = static_cast<Priority>(random());
  return draws;
}

constexpr uint64_t kPartitionBytes = 1 << 20;

// A scheduler that is fed from `draws`.
class Fed {
 public:
  explicit Fed(std::vector<Priority> draws) : draws_(std::move(draws)) {}
  void Submit() {
    scheduler_.Submit({.priority = draws_[count_ % kDraws],
                       .size_bytes = kPartitionBytes,
                       .token = this,
                       .index = static_cast<uint32_t>(count_)});
    ++count_;
  }
  void StartAndAcknowledge() {
    benchmark::DoNotOptimize(scheduler_.Next());
    scheduler_.Return(kPartitionBytes);
  }

 private:
  const std::vector<Priority> draws_;
  size_t count_ = 0;
  Scheduler scheduler_{2 * kPartitionBytes};
};

// "items_per_second" is decisions a second.
void Hold(benchmark::State& state, std::vector<Priority> draws) {
  Fed fed(std::move(draws));
  for (int64_t i = 0; i < state.range(0); ++i) fed.Submit();
  for (auto step : state) {
    static_cast<void>(step);
    fed.Submit();
    fed.StartAndAcknowledge();
  }
  state.SetItemsProcessed(state.iterations());
}

void Drain(benchmark::State& state, std::vector<Priority> draws) {
  Fed fed(std::move(draws));
  for (auto step : state) {
    static_cast<void>(step);
    for (int64_t i = 0; i < state.range(0); ++i) fed.Submit();
    for (int64_t i = 0; i < state.range(0); ++i) fed.StartAndAcknowledge();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void HoldLayers(benchmark::State& state) { Hold(state, LayerPriorities()); }
void HoldAny(benchmark::State& state) { Hold(state, AnyPriorities()); }
void DrainLayers(benchmark::State& state) { Drain(state, LayerPriorities()); }
void DrainAny(benchmark::State& state) { Drain(state, AnyPriorities()); }

// A whole task through the Core: Add, NotifyReady, Start, NotifyFinish and OnFinished of 16
// partitions over 4 servers.  Counted in partitions.
class CoreTask final : public bs::CommTask {
 public:
  explicit CoreTask(Priority priority) : CommTask(0, 1, priority, kPartitions) {}
  std::vector<bs::Partition> Partition(uint64_t) override {
    std::vector<bs::Partition> result;
    for (uint32_t i = 0; i < kPartitions; ++i) {
      result.push_back({.index = i, .server = i % 4, .offset_bytes = i, .size_bytes = 1});
    }
    return result;
  }
  void Start(const bs::Partition& partition) override {
    NotifyFinish(partition.index, bs::Status::Ok());
  }
  void OnFinished(bs::Status) override {}
  static constexpr uint32_t kPartitions = 16;
};

void CoreDecision(benchmark::State& state) {
  std::vector<std::function<void()>> deferred;
  bs::Core core({.num_servers = 4, .partition_bytes = 1, .credit_bytes = 2},
                [&deferred](std::function<void()> f) { deferred.push_back(std::move(f)); });
  for (auto step : state) {
    static_cast<void>(step);
    CoreTask task(-3);
    core.Add(&task);
    task.NotifyReady();
    while (!deferred.empty()) {
      const auto run = std::move(deferred.back());
      deferred.pop_back();
      run();
    }
  }
  state.SetItemsProcessed(state.iterations() * CoreTask::kPartitions);
}

BENCHMARK(HoldLayers)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(HoldAny)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(DrainLayers)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(DrainAny)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(CoreDecision);

}  // namespace
