// Words the log's line on the copies that cross the links of hosts.
#include "node/worker/link_copies.h"

#include <cstdint>
#include <set>

#include "base/count_of.h"

namespace bs::node {

std::string WhyCopyAWorker(const Config& config, const StockWorkers& stock) {
  if (stock.beside) {
    return "it wraps a store of MXNet's own, and with ScheduledKVS() in place of that the workers "
           "of a host add up";
  }
  if (stock.in_job) return "a worker of this job is MXNet's own";
  if (config.rejoin_timeout > Duration(0)) {
    return "a worker that takes a lost place (BYTESCHEDULER_REJOIN_TIMEOUT) has no part in sums "
           "of its host";
  }
  return "";
}

std::string DescribeCopies(const job::View& view, const std::string& why) {
  if (!why.empty()) return "each worker sends its own copy of a tensor over the links: " + why;
  std::set<int32_t> hosts;
  for (const job::Peer& worker : view.workers) hosts.insert(worker.host);
  return "workers of a host add up first: " + CountOf(view.num_workers(), "worker") + " send " +
         (hosts.size() == 1 ? "one copy" : std::to_string(hosts.size()) + " copies") +
         " of each large tensor over the links (BYTESCHEDULER_LOCAL_SUMS)";
}

}  // namespace bs::node
