// StockShard: the keys of stock MXNet workers that live on one thread and one NUMA node.
//
// Confined to its executor.  Answers everything through the state's `send`; a request that can not
// be answered fails the job, and so does a request that has waited for straggler_timeout.  Never
// blocks.  Bounded by the dispatcher, which decides how many keys there may be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/types.h"
#include "server/stock/stock_request.h"
#include "server/stock/stock_slot.h"

namespace bs::server {

class StockShard : public std::enable_shared_from_this<StockShard> {
 public:
  explicit StockShard(StockState state) : state_(std::move(state)) {}
  StockShard(const StockShard&) = delete;
  StockShard& operator=(const StockShard&) = delete;
  ~StockShard() = default;

  // REQUIRES: owned by a shared_ptr.
  void Handle(StockCall call);
  // The worker was lost, and another takes its place.
  void OnWorkerVacant(int32_t worker_id);
  // Workers have sent a command that changes the state.
  void Configure(const std::function<void(StockState*)>& change) { change(&state_); }

 private:
  void LookAt(TimePoint when);
  void Look();

  StockState state_;
  std::unordered_map<uint64_t, StockSlot> slots_;
  // True while a look at all waits is due, so always while a request waits: waits begin only when a
  // request comes.  A single look is enough, at the oldest wait's deadline or before.
  bool looking_ = false;
};

}  // namespace bs::server
