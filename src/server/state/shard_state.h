// ShardState: the state that every shard of a server has, and the state that the slots of a shard
// share.
//
// Confined to the shard's executor, once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"
#include "codec/codec.h"
#include "server/memory/backlog.h"
#include "server/memory/memory_room.h"
#include "server/optimizer/hosted_updates.h"
#include "server/state/counters.h"
#include "server/state/server_options.h"

namespace bs::server {

// The bounds of a server's memory.  Owners: its dispatcher and its shards.
struct Bounds {
  std::shared_ptr<Backlog> backlog;
  std::shared_ptr<MemoryRoom> room;
};

inline Bounds MakeBounds(const ServerOptions& options) {
  return {
      .backlog = std::make_shared<Backlog>(options.view->num_workers(), options.max_backlog_bytes),
      .room = std::make_shared<MemoryRoom>(options.available_bytes)};
}

// The state of every shard, for native keys and for keys of stock workers.  Confined to the shard's
// executor.
struct ShardBase {
  job::SharedView view = job::ShareView({.role = job::Role::kServer}, 1, 1);
  int numa_node = 0;
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  SendFn send{};
  LendPagesFn lend{};                       // as ServerOptions
  Executor* executor = nullptr;             // the shard's
  std::shared_ptr<HostedUpdates> hosted{};  // of the server
  Bounds bounds{};                          // of the server
  uint64_t early_bytes = 0;                 // early contributions of all slots that are kept now

  // How many workers get a sum before that one: none before the first.  Each server begins with
  // another worker, so that they do not all send to one.
  int32_t AnswersBefore(int32_t worker_rank) const {
    const int32_t workers = view->num_workers();
    return (worker_rank + workers - view->own.rank % workers) % workers;
  }
  // Asks for memory of `size_bytes`.  A promise counts as used until it is used or dropped.
  Result<MemoryRoom::Promise> AskForMemory(uint64_t size_bytes) const {
    return bounds.room ? bounds.room->Ask(size_bytes) : MemoryRoom::Promise();
  }
};

inline ShardBase MakeShardBase(const ServerOptions& options, const ServerShard& shard, SendFn send,
                               std::shared_ptr<HostedUpdates> hosted, Bounds bounds) {
  return {.view = options.view,
          .numa_node = shard.numa_node,
          .deterministic = options.deterministic,
          .hold_bytes = options.hold_bytes,
          .send = std::move(send),
          .lend = options.lend,
          .executor = shard.executor,
          .hosted = std::move(hosted),
          .bounds = std::move(bounds)};
}

struct SlotId {
  Key key = 0;
  uint32_t partition = 0;
  uint32_t layout_version = 0;  // counts the layouts of the key
  bool operator==(const SlotId&) const = default;
};
struct SlotIdHash {
  size_t operator()(const SlotId& id) const noexcept {
    // The finalizer of splitmix64 (Steele et al., OOPSLA 2014): keys are often small and regular.
    uint64_t x =
        id.key * 0x9e3779b97f4a7c15ULL + id.partition + (uint64_t{id.layout_version} << 32U);
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return static_cast<size_t>(x ^ (x >> 31U));
  }
};

// The state that the slots of one shard share.
struct ShardState : ShardBase {
  uint32_t num_buffers = 2;
  uint64_t adopted_bytes = UINT64_MAX;                // as ServerOptions
  int64_t max_staleness = -1;                         // of asynchronous keys; below 0: no bound
  std::function<void(const RoundTimes&)> on_round{};  // may be empty

  std::vector<std::optional<Status>> gone{};       // by rank; why the worker is gone
  OptimizerInForce optimizer{};                    // of asynchronous keys
  bool timed = false;                              // whether rounds are, also without on_round
  const codec::Table* codecs = &codec::Builtin();  // not owned
  Counters counters{};

  // Not the time if neither on_round nor metrics want it.
  TimePoint Now() const { return on_round || timed ? executor->Now() : TimePoint(); }
};

}  // namespace bs::server
