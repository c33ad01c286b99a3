// Answers: the sum of the metrics of a server's shards, until all have answered.
//
// Owners: the tasks that ask; touched on the dispatcher's executor only.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/executor.h"
#include "base/metrics.h"
#include "base/unique_function.h"
#include "server/shard.h"

namespace bs::server {

struct Answers {
  Metrics sum;
  size_t missing;
  UniqueFunction<void(const Metrics&)> done;

  void Add(const Metrics& metrics) {
    sum.Add(metrics);
    if (--missing == 0) done(sum);
  }
};

// On the shard's executor.
inline void Ask(const Shard& shard, Executor* dispatcher, const std::shared_ptr<Answers>& answers) {
  Metrics metrics;
  shard.Measure(&metrics);
  dispatcher->Post([answers, metrics = std::move(metrics)] { answers->Add(metrics); });
}

}  // namespace bs::server
