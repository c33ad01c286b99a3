// Counts the scheduling decisions that one core makes in a second, by depth of the queue.
//
// A decision is one partition submitted, started and acknowledged: Submit + Next + Return.  Hold
// keeps the queue at the given depth (new items then tend to overtake the old ones); Drain fills it
// to the depth and empties it, so that every item waits.  TwoProducers is the way of the product:
// two threads post tasks to the thread that owns the Core.  Goals: at least 5,000,000 decisions a
// second at depth 4096 on one thread, whatever the depth; at least 1,000,000 with two producers.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/loop_thread.h"
#include "base/notification.h"
#include "core/core.h"
#include "core/scheduler.h"

namespace {

using bs::Priority;
using bs::core::Scheduler;

constexpr size_t kDraws = 1 << 16;  // a power of two: draws are used round and round

// Returns priorities as a model's layers have them: each the negated index of one of 500 layers.
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

// A task as a worker makes one of each call: on the thread of the Core, with a number of
// partitions.
class PostedTask final : public bs::CommTask {
 public:
  PostedTask(Priority priority, uint32_t partitions, std::function<void()> finished)
      : CommTask(0, 1, priority, partitions), finished_(std::move(finished)) {}
  std::vector<bs::Partition> Partition(uint64_t) override {
    std::vector<bs::Partition> result;
    for (uint32_t i = 0; i < size_bytes(); ++i) {
      result.push_back({.index = i, .server = i % 4, .offset_bytes = i, .size_bytes = 1});
    }
    return result;
  }
  void Start(const bs::Partition& partition) override {
    NotifyFinish(partition.index, bs::Status::Ok());
  }
  void OnFinished(bs::Status) override {
    const std::function<void()> finished = std::move(finished_);
    delete this;
    finished();
  }

 private:
  std::function<void()> finished_;
};

// A Core on a thread of its own, as in a worker.
class PostedCore {
 public:
  PostedCore() {
    for (auto& draws : draws_) draws = LayerPriorities();
  }
  PostedCore(const PostedCore&) = delete;
  PostedCore& operator=(const PostedCore&) = delete;
  ~PostedCore() {
    bs::Notification gone;
    loop_.Post([this, &gone] {
      core_.reset();
      gone.Notify();
    });
    gone.Wait();
  }
  // Two threads post so many tasks each; returns when all are finished.
  void Run(size_t tasks, uint32_t partitions) {
    bs::Notification over;
    left_ = draws_.size() * tasks;  // before the first is posted
    const auto produce = [&](size_t producer) {
      for (size_t i = 0; i < tasks; ++i) {
        const Priority priority = draws_.at(producer)[i % kDraws];
        loop_.Post([this, priority, partitions, &over] {
          auto* const task = new PostedTask(priority, partitions, [this, &over] {
            if (--left_ == 0) over.Notify();
          });
          core_->Add(task);
          task->NotifyReady();
        });
      }
    };
    std::thread other(produce, 1);
    produce(0);
    other.join();
    over.Wait();
  }

 private:
  std::array<std::vector<Priority>, 2> draws_;
  size_t left_ = 0;  // the loop's while it runs
  bs::LoopThread loop_{"core"};
  std::unique_ptr<bs::Core> core_ = std::make_unique<bs::Core>(
      bs::CoreOptions{.num_servers = 4, .partition_bytes = 1, .credit_bytes = 1 << 20},
      [this](std::function<void()> f) { loop_.Post(std::move(f)); });
};

// "items_per_second" is partitions a second; a task has as many as the argument says.
void TwoProducers(benchmark::State& state) {
  constexpr size_t kTasks = 2048;  // of each
  PostedCore core;
  const auto partitions = static_cast<uint32_t>(state.range(0));
  for (auto step : state) {
    static_cast<void>(step);
    core.Run(kTasks, partitions);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(2 * kTasks * partitions));
}

BENCHMARK(HoldLayers)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(HoldAny)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(DrainLayers)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(DrainAny)->Arg(16)->Arg(256)->Arg(4096)->Arg(65536);
BENCHMARK(CoreDecision);
BENCHMARK(TwoProducers)->Arg(1)->Arg(16)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
