// StockShard: the keys of stock MXNet workers that live on one thread and one NUMA node.
//
// Confined to its executor.  Answers everything through the state's `send`; what can not be
// answered fails the job.  Never blocks.  Bounded by the front, which decides how many keys there
// may be.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "server/stock_request.h"
#include "server/stock_slot.h"

namespace bs::server {

class StockShard {
 public:
  explicit StockShard(StockState state) : state_(std::move(state)) {}
  StockShard(const StockShard&) = delete;
  StockShard& operator=(const StockShard&) = delete;
  ~StockShard() = default;

  void Handle(StockCall call);
  // Workers have sent a command that changes the state.
  void Configure(const std::function<void(StockState*)>& change) { change(&state_); }

 private:
  StockState state_;
  std::unordered_map<uint64_t, StockSlot> slots_;
};

}  // namespace bs::server
