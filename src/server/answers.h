// Answers: what the shards of a server tell of themselves, until all have.
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

  void Add(const Metrics& figures) {
    sum.Add(figures);
    if (--missing == 0) done(sum);
  }
};

// On the shard's executor.
inline void Ask(const Shard& shard, Executor* dispatcher, const std::shared_ptr<Answers>& answers) {
  Metrics figures;
  shard.Measure(&figures);
  dispatcher->Post([answers, figures = std::move(figures)] { answers->Add(figures); });
}

}  // namespace bs::server
