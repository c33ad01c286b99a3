// ServerQueues: which server is behind, and which has to wait for it.
#include "core/server_queues.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace bs::core {

ServerQueues::ServerQueues(uint32_t num_servers, uint64_t credit_bytes, const Shares& shares,
                           bool small_reserve)
    : servers_(num_servers) {
  const std::vector<uint32_t>& weights = shares.weights;
  BS_CHECK(num_servers > 0 && (weights.empty() || weights.size() == num_servers));
  const double mean =
      std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(num_servers);
  for (size_t i = 0; i < servers_.size(); ++i) {
    schedulers_.push_back(std::make_unique<Scheduler>(credit_bytes, small_reserve));
    if (!weights.empty() && weights[i] > 0) servers_[i].per_byte = mean / weights[i];
  }
  for (const uint32_t server : shares.beside) servers_.at(server).beside = true;
}

void ServerQueues::Submit(uint32_t server, const Item& item) {
  Server& to = servers_[server];
  // A server that had nothing to do has not saved up for later.
  if (!to.queued) to.started = std::max(to.started, Progress());
  schedulers_[server]->Submit(item);
  Look(server);
}

std::optional<Item> ServerQueues::Next(uint32_t server) {
  if (!schedulers_[server]->may_start() || IsHeld(server)) return std::nullopt;
  const std::optional<Item> item = schedulers_[server]->Next();
  if (!item) return std::nullopt;
  servers_[server].started += static_cast<double>(item->size_bytes) * servers_[server].per_byte;
  Look(server);
  return item;
}

void ServerQueues::Return(uint32_t server, uint64_t size_bytes) {
  schedulers_[server]->Return(size_bytes);
}

void ServerQueues::SetCredit(uint64_t credit_bytes) {
  for (const auto& scheduler : schedulers_) scheduler->SetCredit(credit_bytes);
}

void ServerQueues::Remove(uint32_t server, const void* token) {
  schedulers_[server]->Remove(token);
  Look(server);
}

void ServerQueues::Clear() {
  for (uint32_t server = 0; server < num_servers(); ++server) {
    schedulers_[server]->Clear();
    Look(server);
  }
}

void ServerQueues::Look(uint32_t server) {
  servers_[server].queued = schedulers_[server]->queued() > 0;
  if (servers_[server].queued) servers_[server].urgency = schedulers_[server]->head().priority;
  least_.reset();
}

double ServerQueues::Least() {
  if (least_) return *least_;
  double least = std::numeric_limits<double>::infinity();
  for (const Server& server : servers_) {
    if (server.queued) least = std::min(least, server.started);
  }
  least_ = least;
  return least;
}

double ServerQueues::Progress() {
  double most = 0;
  for (const Server& server : servers_) most = std::max(most, server.started);
  return std::min(Least(), most);
}

bool ServerQueues::IsHeldBy(const Server& ahead, double lead, const Server& other) {
  return other.queued && other.started + lead < ahead.started && other.urgency >= ahead.urgency;
}

bool ServerQueues::IsHeld(uint32_t server) {
  const Server& ahead = servers_[server];
  const double lead = static_cast<double>(schedulers_[server]->head().size_bytes) * ahead.per_byte;
  if (ahead.beside || ahead.started <= Least() + lead) return false;
  if (IsHeldBy(ahead, lead, servers_[holder_])) return true;  // mostly by the last holder
  const auto holder = std::find_if(servers_.begin(), servers_.end(), [&](const Server& other) {
    return IsHeldBy(ahead, lead, other);
  });
  if (holder == servers_.end()) return false;
  holder_ = static_cast<size_t>(holder - servers_.begin());
  return true;
}

}  // namespace bs::core
