// ServerQueues: which server is behind, and which has to wait for it.
#include "core/server_queues.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace bs::core {

ServerQueues::ServerQueues(uint32_t num_servers, uint64_t credit_bytes,
                           const std::vector<uint32_t>& weights)
    : servers_(num_servers) {
  BS_CHECK(num_servers > 0 && (weights.empty() || weights.size() == num_servers));
  const double mean =
      std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(num_servers);
  for (size_t i = 0; i < servers_.size(); ++i) {
    servers_[i].scheduler = std::make_unique<Scheduler>(credit_bytes);
    if (!weights.empty() && weights[i] > 0) servers_[i].per_byte = mean / weights[i];
  }
}

void ServerQueues::Submit(uint32_t server, const Item& item) {
  // A server that had nothing to do has not saved up for later.
  if (of(server).queued() == 0) {
    servers_[server].started = std::max(servers_[server].started, Progress());
  }
  At(server).Submit(item);
}

std::optional<Item> ServerQueues::Next(uint32_t server) {
  if (!of(server).may_start() || IsHeld(servers_[server])) return std::nullopt;
  const std::optional<Item> item = At(server).Next();
  servers_[server].started += static_cast<double>(item->size_bytes) * servers_[server].per_byte;
  return item;
}

void ServerQueues::SetCredit(uint64_t credit_bytes) {
  for (const Server& server : servers_) server.scheduler->SetCredit(credit_bytes);
}

void ServerQueues::Clear() {
  for (const Server& server : servers_) server.scheduler->Clear();
}

double ServerQueues::Progress() const {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const Server& server : servers_) {
    if (server.scheduler->queued() > 0) least = std::min(least, server.started);
    most = std::max(most, server.started);
  }
  return std::min(least, most);
}

bool ServerQueues::IsHeldBy(const Server& ahead, const Server& other) const {
  if (other.scheduler->queued() == 0) return false;
  const Item& head = ahead.scheduler->head();
  const double lead = static_cast<double>(head.size_bytes) * ahead.per_byte;
  return other.started + lead < ahead.started && other.scheduler->head().priority >= head.priority;
}

bool ServerQueues::IsHeld(const Server& server) {
  if (IsHeldBy(server, servers_[holder_])) return true;  // mostly the same holds all others
  const auto holder = std::find_if(servers_.begin(), servers_.end(),
                                   [&](const Server& other) { return IsHeldBy(server, other); });
  if (holder == servers_.end()) return false;
  holder_ = static_cast<size_t>(holder - servers_.begin());
  return true;
}

}  // namespace bs::core
