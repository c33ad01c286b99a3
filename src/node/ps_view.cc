// Finds the hosts of the nodes in the scheduler node's list.
#include "node/ps_view.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ps/message.h"

namespace bs::node {
namespace {

void PutOnHost(const ps::Node& node, size_t host, job::View* view) {
  if (host == view->hosts.size()) view->hosts.emplace_back();
  uint64_t& rate = view->hosts[host].link_rate;
  if (node.link_rate > 0 && (rate == 0 || node.link_rate < rate)) rate = node.link_rate;
  std::vector<job::Peer>& peers = node.role == ps::Role::kServer ? view->servers : view->workers;
  const int32_t rank = ps::RankOf(node.id);
  if (rank < 0 || static_cast<size_t>(rank) >= peers.size()) return;
  peers[static_cast<size_t>(rank)].host = static_cast<int32_t>(host);
}

}  // namespace

job::View ViewOf(const ps::View& listed, job::Role role) {
  job::View view;
  view.job = listed.job;
  view.own = {.role = role, .rank = listed.rank, .incarnation = listed.incarnation};
  view.workers.resize(static_cast<size_t>(listed.num_workers));
  view.servers.resize(static_cast<size_t>(listed.num_servers));
  // There are no more hosts than listed nodes.
  auto unknown = static_cast<int32_t>(listed.nodes.size());
  for (job::Peer& peer : view.workers) peer.host = unknown++;
  for (job::Peer& peer : view.servers) peer.host = unknown++;
  std::map<std::string, size_t> hosts;
  std::set<int32_t> known;  // the stores of one stock process share an id
  for (const ps::Node& node : listed.nodes) {
    const bool counts = node.role != ps::Role::kScheduler && !ps::IsAttachedId(node.id);
    if (!counts || !known.insert(node.id).second) continue;
    PutOnHost(node, hosts.try_emplace(ps::HostOf(node), hosts.size()).first->second, &view);
  }
  return view;
}

}  // namespace bs::node
