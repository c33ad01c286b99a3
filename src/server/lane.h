// Lane: one executor of a server with the shard that lives there, as the front keeps it.
//
// Confined to the front's executor.  Never fails, never blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "bytescheduler/server.h"
#include "server/hosted_updates.h"
#include "server/parked.h"

namespace bs::server {

// What every shard has, of native keys and of those of stock workers.  Its executor's.
struct ShardBase {
  int32_t num_workers = 1;
  int numa_node = 0;
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  SendFn send{};
  Executor* executor = nullptr;             // the shard's
  std::shared_ptr<HostedUpdates> hosted{};  // of the server
  uint64_t held_bytes = 0;                  // early contributions of all slots that are kept now
};

inline ShardBase MakeShardBase(const ServerOptions& options, const ServerShard& shard, SendFn send,
                               std::shared_ptr<HostedUpdates> hosted) {
  return {.num_workers = options.num_workers,
          .numa_node = shard.numa_node,
          .deterministic = options.deterministic,
          .hold_bytes = options.hold_bytes,
          .send = std::move(send),
          .executor = shard.executor,
          .hosted = std::move(hosted)};
}

template <typename S>
struct Lane {
  Executor* executor = nullptr;
  // Owners: the front and the tasks it has posted, so that a task that is left over when the server
  // goes finds its shard.
  std::shared_ptr<S> shard;
  uint64_t load_bytes = 0;  // of the keys that went here
};

// Index of the one with the fewest bytes among the first `count`.  REQUIRES: count > 0.
template <typename S>
size_t LeastLoaded(const std::vector<Lane<S>>& lanes, size_t count) {
  const auto least = std::min_element(
      lanes.begin(), lanes.begin() + static_cast<std::ptrdiff_t>(count),
      [](const Lane<S>& a, const Lane<S>& b) { return a.load_bytes < b.load_bytes; });
  return static_cast<size_t>(least - lanes.begin());
}

}  // namespace bs::server
