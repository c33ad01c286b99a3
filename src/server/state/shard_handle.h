// ShardHandle: the dispatcher's record of a shard: its executor and its load.
//
// Confined to the dispatcher's executor.  Never fails, never blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "protocol/call.h"
#include "server/memory/backlog.h"

namespace bs::server {

template <typename S>
struct ShardHandle {
  Executor* executor = nullptr;
  // Owners: the dispatcher and the tasks it has posted.  A task that outlives the server still
  // finds its shard.
  std::shared_ptr<S> shard;
  uint64_t load_bytes = 0;  // of the keys that went here
};

// Returns about how many bytes a waiting request keeps.
inline uint64_t KeptBytes(const protocol::Call& call) {
  constexpr uint64_t kCallBytes = 1U << 10U;  // of a call without further bytes
  return kCallBytes + call.payload.size() + call.extension.text.size() +
         call.request.next_layout.size() + call.request.about.size() +
         call.request.optimizer.size();
}

// Posts a worker's call to the shard; the posted task uses `backlog`.  False, and `call` stays, if
// the backlog has no room.
template <typename S, typename C>
bool PostCall(const ShardHandle<S>& handle, Backlog* backlog, int32_t rank, C* call) {
  const uint64_t size_bytes = KeptBytes(*call);
  if (!backlog->Take(rank, size_bytes)) return false;
  handle.executor->Post(
      [shard = handle.shard, backlog, rank, size_bytes, moved = std::move(*call)]() mutable {
        shard->Handle(std::move(moved));
        backlog->Done(rank, size_bytes);
      });
  return true;
}

// Index of the shard with the fewest bytes among the first `count`.  REQUIRES: count > 0.
template <typename S>
size_t LeastLoaded(const std::vector<ShardHandle<S>>& handles, size_t count) {
  const auto least = std::min_element(
      handles.begin(), handles.begin() + static_cast<std::ptrdiff_t>(count),
      [](const ShardHandle<S>& a, const ShardHandle<S>& b) { return a.load_bytes < b.load_bytes; });
  return static_cast<size_t>(least - handles.begin());
}

}  // namespace bs::server
