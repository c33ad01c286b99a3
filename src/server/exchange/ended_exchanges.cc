// Keeps outcomes of exchanges in the order of their ends.
#include "server/exchange/ended_exchanges.h"

#include <algorithm>

namespace bs::server {

LatestRequests RequestsOf(const protocol::ExchangeTerms& terms) {
  LatestRequests latest;
  for (const int32_t rank : terms.givers) latest.emplace(rank, 0);
  for (const int32_t rank : terms.takers) latest.emplace(rank, 0);
  return latest;
}

const Status* EndedExchanges::Find(Key key) const {
  const auto at = ended_.find(key);
  return at != ended_.end() ? &at->second.outcome : nullptr;
}

void EndedExchanges::Add(Key key, const Status& outcome, const LatestRequests& latest) {
  const auto [at, fresh] = ended_.try_emplace(key, Ended{.outcome = outcome, .latest = {}});
  if (!fresh) return;
  at->second.latest.reserve(latest.size());
  for (const auto& [rank, sequence] : latest) at->second.latest.push_back({rank, sequence});
  Order& order = outcome.ok() ? succeeded_ : failed_;
  order.keys.push_back(key);
  order.num_waits += latest.size();
  Sweep(&order);
}

void EndedExchanges::NoteRequest(Key key, int32_t rank, uint64_t sequence) {
  const auto at = ended_.find(key);
  if (at == ended_.end()) return;
  std::vector<Latest>& latest = at->second.latest;
  auto of_rank = std::ranges::find(latest, rank, &Latest::rank);
  if (of_rank == latest.end()) {  // it differs in the workers of the exchange
    (at->second.outcome.ok() ? succeeded_ : failed_).num_waits += 1;
    of_rank = latest.insert(of_rank, {rank, 0});
  }
  of_rank->sequence = std::max(of_rank->sequence, sequence);
}

void EndedExchanges::NoteAnswers(int32_t rank, uint64_t answered_below) {
  uint64_t& known = answered_below_[static_cast<size_t>(rank)];
  if (answered_below <= known) return;
  known = answered_below;
  SweepAll();
}

void EndedExchanges::OnWorkerGone(int32_t rank) {
  gone_[static_cast<size_t>(rank)] = true;
  SweepAll();
}

// A worker need not ask for a result to tell that it has it.
bool EndedExchanges::IsSettled(const Ended& ended) const {
  return std::ranges::all_of(ended.latest, [&](const Latest& latest) {
    if (gone_[static_cast<size_t>(latest.rank)]) return true;
    if (latest.sequence == 0) return ended.outcome.ok();
    return IsAnswered(latest.rank, latest.sequence);
  });
}

void EndedExchanges::Sweep(Order* order) {
  while (order->keys.size() > kLeast) {
    const auto at = ended_.find(order->keys.front());
    if (order->num_waits <= kMostWaits && !IsSettled(at->second)) break;
    Forget(at, order);
    order->keys.pop_front();
  }
  if (order->keys.size() >= order->next_scan) SweepBehindUnsettled(order);
}

// An idle worker may leave the earliest outcome unsettled for long.
void EndedExchanges::SweepBehindUnsettled(Order* order) {
  const auto latest = order->keys.end() - static_cast<ptrdiff_t>(kLeast);
  const auto kept = std::remove_if(order->keys.begin(), latest, [&](Key key) {
    const auto at = ended_.find(key);
    if (!IsSettled(at->second)) return false;
    Forget(at, order);
    return true;
  });
  order->keys.erase(kept, latest);
  order->next_scan = 2 * std::max(order->keys.size(), kLeast);
}

void EndedExchanges::Forget(Outcomes::iterator at, Order* order) {
  order->num_waits -= at->second.latest.size();
  ended_.erase(at);
}

void EndedExchanges::SweepAll() {
  Sweep(&succeeded_);
  Sweep(&failed_);
}

}  // namespace bs::server
