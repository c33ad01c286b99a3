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
#include "protocol/call.h"
#include "server/memory/backlog.h"

namespace bs::server {

template <typename S>
struct Lane {
  Executor* executor = nullptr;
  // Owners: the front and the tasks it has posted, so that a task that is left over when the server
  // goes finds its shard.
  std::shared_ptr<S> shard;
  uint64_t load_bytes = 0;  // of the keys that went here
};

// Returns about how many bytes a waiting request keeps.
inline uint64_t KeptBytes(const protocol::Call& call) {
  constexpr uint64_t kCallBytes = 1U << 10U;  // of one that has nothing else
  return kCallBytes + call.payload.size() + call.extension.text.size() +
         call.request.next_layout.size() + call.request.about.size() +
         call.request.optimizer.size();
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
