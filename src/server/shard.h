// Shard: the partitions of one thread and one NUMA node.
//
// Confined to its executor.  Answers everything through `send` on that executor; a request for
// which there is no memory is refused with kResourceExhausted.  Never blocks.  Bounded by the
// dispatcher, which decides how many partitions there may be.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/status.h"
#include "protocol/call.h"
#include "server/async/async_slot.h"
#include "server/sync/slot.h"

namespace bs::server {

class Shard {
 public:
  explicit Shard(ShardState state) : state_(std::move(state)) {
    state_.counters.Expect(state_.view->num_workers());
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard() = default;

  // A push or pull of a worker whose rank is in range.
  void Handle(protocol::Call call);
  // No worker asks for this partition of a synchronous key any more.
  void Forget(SlotId id);
  // Refuses with `why` the requests that cannot complete without `rank`, pending or still to come.
  void OnWorkerGone(int32_t rank, const Status& why);
  // `rank` was lost, and another worker takes its place and counts its pushes of asynchronous keys
  // from the beginning.  REQUIRES: there are no synchronous keys.
  void OnWorkerVacant(int32_t rank);
  // Refuses every request, pending or still to come, with `why`.
  void Fail(const Status& why);
  // Asynchronous keys are updated with it from now on; their states start afresh.
  void SetOptimizer(OptimizerInForce optimizer);
  void Measure(Metrics* metrics) const;

 private:
  Status CheckMode(const protocol::Call& call, SlotId id) const;

  ShardState state_;
  std::optional<Status> failure_;
  std::unordered_map<SlotId, Slot, SlotIdHash> slots_;  // synchronous keys
  std::unordered_map<SlotId, AsyncSlot, SlotIdHash> async_slots_;
};

}  // namespace bs::server
