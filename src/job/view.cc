// Views of jobs of unknown hosts.
#include "job/view.h"

#include <utility>

#include "base/check.h"

namespace bs::job {

View MakeView(Place own, int32_t num_workers, int32_t num_servers) {
  BS_CHECK(num_workers >= 0 && num_servers >= 0);
  View view;
  view.own = own;
  int32_t host = 0;
  for (int32_t rank = 0; rank < num_workers; ++rank) view.workers.push_back({.host = host++});
  for (int32_t rank = 0; rank < num_servers; ++rank) view.servers.push_back({.host = host++});
  return view;
}

std::vector<int32_t> View::WorkersBeside(int32_t rank) const {
  const int32_t host = workers[static_cast<size_t>(rank)].host;
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < num_workers(); ++i) {
    if (workers[static_cast<size_t>(i)].host == host) ranks.push_back(i);
  }
  return ranks;
}

std::vector<uint32_t> View::ServersBeside() const {
  const std::vector<Peer>& own_kind = own.role == Role::kWorker ? workers : servers;
  const int32_t host = own_kind.at(static_cast<size_t>(own.rank)).host;
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    if (servers[i].host == host) ranks.push_back(i);
  }
  return ranks;
}

SharedView ShareView(Place own, int32_t num_workers, int32_t num_servers) {
  return std::make_shared<const View>(MakeView(own, num_workers, num_servers));
}

}  // namespace bs::job
