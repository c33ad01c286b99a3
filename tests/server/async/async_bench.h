// A shard with one asynchronous partition and, if wanted, a hosting process, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "server/bench.h"
#include "server/shard.h"

namespace bs::server {

class AsyncBench : public RequestBench {
 public:
  struct Options {
    int32_t num_workers = 1;
    uint64_t job = 0;
    int64_t max_staleness = -1;
    std::string optimizer = "sgd learning_rate=-1";  // of the server's own; empty: none
    bool hosts = false;
    std::function<uint64_t()> available_bytes{};
    const codec::Table* codecs = &codec::Builtin();
  };
  explicit AsyncBench(const Options& options) {
    ShardState state;
    job::View view = job::MakeView({.role = job::Role::kServer}, options.num_workers, 1);
    view.job = options.job;
    state.view = std::make_shared<const job::View>(std::move(view));
    state.max_staleness = options.max_staleness;
    state.send = outbox.sender();
    state.bounds.room = std::make_shared<MemoryRoom>(options.available_bytes);
    state.executor = &executor;
    state.codecs = options.codecs;
    state.timed = true;
    state.hosted =
        std::make_shared<HostedUpdates>(options.hosts ? host.Updater() : ServerUpdater{});
    shard_.emplace(std::move(state));
    if (!options.optimizer.empty()) Set(options.optimizer);
  }
  explicit AsyncBench(int32_t num_workers) : AsyncBench(Options{.num_workers = num_workers}) {}

  static std::shared_ptr<const OptimizerSpec> Native(const std::string& optimizer) {
    return std::make_shared<const OptimizerSpec>(ParseOptimizer(optimizer).value());
  }
  void Set(const std::string& optimizer) { shard().SetOptimizer({Native(optimizer), nullptr}); }

  static protocol::Call Call(Ask ask) {
    ask.mode = Mode::kAsynchronous;
    return MakeCall(ask);
  }
  void Post(const Ask& ask) override { shard_->Handle(Call(ask)); }
  // The weights that a pull gets at once.
  std::vector<float> PullNow(int32_t rank, uint64_t round) {
    Post(Newest(Pull(rank, round, 4)));
    const std::vector<ps::Message> answers = outbox.All();
    EXPECT_EQ(answers.size(), 1u);
    if (answers.empty() || answers[0].data.empty()) return {};
    return ToFloats(answers[0].data[0].bytes());
  }
  // As a worker counts: no two requests of one sequence.
  Ask Newest(Ask ask) {
    ask.sequence = next_sequence_++;
    return ask;
  }
  Shard& shard() { return *shard_; }

 private:
  std::optional<Shard> shard_;
  uint64_t next_sequence_ = 5000;
};

}  // namespace bs::server
