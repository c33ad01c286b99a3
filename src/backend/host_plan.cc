// The workers of a host take turns.
#include "backend/host_plan.h"

#include <algorithm>

#include "base/check.h"
#include "protocol/placement.h"
#include "protocol/server_shares.h"

namespace bs::backend {

HostPlan::HostPlan(const job::View& view, bool also_on_one_host)
    : ranks_(also_on_one_host || protocol::AddsUpOnHosts(view)
                 ? view.WorkersBeside(view.own.rank)
                 : std::vector<int32_t>{view.own.rank}) {}

std::optional<size_t> HostPlan::PlaceOf(int32_t rank) const {
  const auto place = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (place == ranks_.end() || *place != rank) return std::nullopt;
  return static_cast<size_t>(place - ranks_.begin());
}

size_t HostPlan::PlaceOnHost(int32_t rank) const {
  const std::optional<size_t> place = PlaceOf(rank);
  BS_CHECK(place.has_value());
  return place.value_or(0);
}

int32_t HostPlan::OwnerOf(Key key, uint32_t partition) const {
  return ranks_[OwnersPlace(key, partition)];
}

size_t HostPlan::OwnersPlace(Key key, uint32_t partition) const {
  const auto workers = static_cast<uint32_t>(ranks_.size());
  return (uint64_t{protocol::HomeServer(key, workers)} + partition) % workers;
}

}  // namespace bs::backend
