// Hands requests of stock MXNet workers to the keys of one thread.
#include "server/stock/stock_shard.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace bs::server {

void StockShard::Handle(StockCall call) {
  const std::string what = DescribeStockCall(call);
  try {
    StockSlot& slot = slots_.try_emplace(call.key, &state_, call.key).first->second;
    slot.Handle(std::move(call));
    if (looking_) return;
    if (const std::optional<TimePoint> due = slot.due()) LookAt(*due);
  } catch (const std::bad_alloc&) {
    state_.fail(Status::ResourceExhausted(what + ": no memory"));
  }
}

void StockShard::OnWorkerVacant(int32_t worker_id) {
  for (auto& [key, slot] : slots_) slot.OnWorkerVacant(worker_id);
}

void StockShard::LookAt(TimePoint when) {
  looking_ = true;
  state_.executor->PostAt(when, [weak = weak_from_this()] {
    if (const std::shared_ptr<StockShard> shard = weak.lock()) shard->Look();
  });
}

void StockShard::Look() {
  looking_ = false;
  const TimePoint now = state_.executor->Now();
  std::optional<TimePoint> next;
  for (const auto& [key, slot] : slots_) {
    const std::optional<TimePoint> due = slot.due();
    if (!due) continue;
    if (*due <= now) return state_.fail(slot.Overdue());
    next = next ? std::min(*next, *due) : *due;
  }
  if (next) LookAt(*next);
}

}  // namespace bs::server
