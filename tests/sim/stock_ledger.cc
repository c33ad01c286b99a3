// The pushes of stock workers, in all their incarnations.
#include "sim/stock_ledger.h"

#include <algorithm>

#include "ps/message.h"

namespace bs::sim {

void StockLedger::OnSent(int32_t worker, int32_t timestamp, size_t key, uint64_t round) {
  sent_[{worker, timestamp}] = {key, round};
}

void StockLedger::OnReceived(int32_t server, int32_t worker, int32_t timestamp) {
  const auto found = sent_.find({worker, timestamp});
  if (found == sent_.end()) return;
  const auto& [key, round] = found->second;
  uint64_t& counted = counted_[{server, worker, key}];
  counted = std::max(counted, round);  // a repeat changes nothing
}

void StockLedger::Forget(int32_t worker) {
  std::erase_if(sent_, [worker](const auto& entry) { return entry.first.first == worker; });
}

void StockLedger::OnVacant(int32_t server, int32_t worker) {
  for (size_t key = 0; key < num_keys_; ++key) {
    uint64_t complete = counted(server, worker, key);
    for (size_t rank = 0; rank < lost.size(); ++rank) {
      const int32_t id = ps::WorkerId(static_cast<int32_t>(rank));
      complete = std::min(complete, counted(server, id, key));
    }
    uint64_t& own = counted_[{server, worker, key}];
    own = std::min(own, complete + 1);
  }
}

uint64_t StockLedger::counted(int32_t server, int32_t worker, size_t key) const {
  const auto found = counted_.find({server, worker, key});
  return found == counted_.end() ? 0 : found->second;
}

}  // namespace bs::sim
