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
#include "server/backlog.h"
#include "server/hosted_updates.h"
#include "server/memory_room.h"
#include "server/parked.h"
#include "server/waiting_call.h"

namespace bs::server {

// What bounds the memory of a server.  Owners: its front and its shards.
struct Bounds {
  std::shared_ptr<Backlog> backlog;
  std::shared_ptr<MemoryRoom> room;
};

inline Bounds MakeBounds(const ServerOptions& options) {
  return {.backlog = std::make_shared<Backlog>(options.num_workers, options.max_backlog_bytes),
          .room = std::make_shared<MemoryRoom>(options.available_bytes)};
}

// What every shard has, of native keys and of those of stock workers.  Its executor's.
struct ShardBase {
  int32_t num_workers = 1;
  int numa_node = 0;
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  SendFn send{};
  Executor* executor = nullptr;             // the shard's
  std::shared_ptr<HostedUpdates> hosted{};  // of the server
  Bounds bounds{};                          // of the server
  uint64_t held_bytes = 0;                  // early contributions of all slots that are kept now

  // Whether there is memory for so much more.  What is promised counts until it is used.
  Result<MemoryRoom::Promise> AskForMemory(uint64_t size_bytes) const {
    return bounds.room ? bounds.room->Ask(size_bytes) : MemoryRoom::Promise();
  }
};

inline ShardBase MakeShardBase(const ServerOptions& options, const ServerShard& shard, SendFn send,
                               std::shared_ptr<HostedUpdates> hosted, Bounds bounds) {
  return {.num_workers = options.num_workers,
          .numa_node = shard.numa_node,
          .deterministic = options.deterministic,
          .hold_bytes = options.hold_bytes,
          .send = std::move(send),
          .executor = shard.executor,
          .hosted = std::move(hosted),
          .bounds = std::move(bounds)};
}

template <typename S>
struct Lane {
  Executor* executor = nullptr;
  // Owners: the front and the tasks it has posted, so that a task that is left over when the server
  // goes finds its shard.
  std::shared_ptr<S> shard;
  uint64_t load_bytes = 0;  // of the keys that went here
};

// What a request that waits keeps, about.
inline uint64_t KeptBytes(const ps::KvCall& call) {
  constexpr uint64_t kCallBytes = 1U << 10U;  // of one that has nothing else
  return kCallBytes + call.payload.size() + call.extension.text.size() + call.extension.next.size();
}

// Hands a call of that worker to the lane's shard, which keeps `backlog`.  False, and `call` stays,
// if it may not wait there.
template <typename S, typename C>
bool PostCall(const Lane<S>& lane, Backlog* backlog, int32_t rank, C* call) {
  const uint64_t size_bytes = KeptBytes(*call);
  if (!backlog->Take(rank, size_bytes)) return false;
  lane.executor->Post(
      [shard = lane.shard, backlog, rank, size_bytes, moved = std::move(*call)]() mutable {
        shard->Handle(std::move(moved));
        backlog->Done(rank, size_bytes);
      });
  return true;
}

// Index of the one with the fewest bytes among the first `count`.  REQUIRES: count > 0.
template <typename S>
size_t LeastLoaded(const std::vector<Lane<S>>& lanes, size_t count) {
  const auto least = std::min_element(
      lanes.begin(), lanes.begin() + static_cast<std::ptrdiff_t>(count),
      [](const Lane<S>& a, const Lane<S>& b) { return a.load_bytes < b.load_bytes; });
  return static_cast<size_t>(least - lanes.begin());
}

}  // namespace bs::server
