// Views of lists as scheduler nodes send them.
#include "node/ps_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ps/message.h"

namespace bs::node {
namespace {

using Ranks = std::vector<int32_t>;

ps::Node NodeOf(ps::Role role, int32_t rank, const char* host, uint64_t rate = 0) {
  return {.role = role,
          .id = role == ps::Role::kWorker ? ps::WorkerId(rank) : ps::ServerId(rank),
          .hostname = host,
          .port = 1000 + rank,
          .link_rate = rate};
}

// The view of worker 0 in a job of that size.
job::View ViewOfList(std::vector<ps::Node> nodes, int32_t num_workers, int32_t num_servers) {
  ps::View listed;
  listed.rank = 0;
  listed.num_workers = num_workers;
  listed.num_servers = num_servers;
  listed.nodes = std::move(nodes);
  return ViewOf(listed, job::Role::kWorker);
}

Ranks HostsOfPeers(const std::vector<job::Peer>& peers) {
  Ranks hosts;
  for (const job::Peer& peer : peers) hosts.push_back(peer.host);
  return hosts;
}

TEST(PsView, HasThePlaceThatTheSchedulerNodeGave) {
  ps::View listed;
  listed.rank = 1;
  listed.num_workers = 3;
  listed.num_servers = 2;
  listed.incarnation = 4;
  listed.job = 77;
  const job::View view = ViewOf(listed, job::Role::kServer);
  EXPECT_EQ(view.own, (job::Place{.role = job::Role::kServer, .rank = 1, .incarnation = 4}));
  EXPECT_EQ(view.job, 77U);
  EXPECT_EQ(view.epoch, 0U);
  EXPECT_EQ(view.num_workers(), 3);
  EXPECT_EQ(view.num_servers(), 2);
}

TEST(PsView, HostsStandInTheOrderOfTheList) {
  std::vector<ps::Node> nodes = {NodeOf(ps::Role::kWorker, 0, "10.0.0.2"),
                                 NodeOf(ps::Role::kServer, 1, "10.0.0.1"),
                                 NodeOf(ps::Role::kServer, 0, "10.0.0.2"),
                                 {.role = ps::Role::kScheduler, .id = 1, .hostname = "10.0.0.9"}};
  nodes.push_back(nodes.front());  // another store of its process
  nodes.push_back(nodes.front());
  nodes.back().id = ps::AttachedId(0);
  nodes.back().hostname = "10.0.0.8";
  const job::View view = ViewOfList(nodes, 1, 2);
  EXPECT_EQ(HostsOfPeers(view.workers), Ranks{0});
  EXPECT_EQ(HostsOfPeers(view.servers), (Ranks{0, 1}));
  EXPECT_EQ(view.hosts.size(), 2U);
  nodes[0].first_hostname = "10.0.0.2";
  nodes[0].hostname = "10.0.0.7";
  EXPECT_EQ(ViewOfList(nodes, 1, 2), view) << "another node has taken its place";
}

TEST(PsView, WorkersOfOneHostHaveItsNumber) {
  std::vector<ps::Node> nodes = {
      NodeOf(ps::Role::kServer, 0, "10.0.0.3"), NodeOf(ps::Role::kWorker, 2, "10.0.0.1"),
      NodeOf(ps::Role::kWorker, 0, "10.0.0.2"), NodeOf(ps::Role::kWorker, 3, "10.0.0.1"),
      NodeOf(ps::Role::kWorker, 1, "10.0.0.2")};
  EXPECT_EQ(HostsOfPeers(ViewOfList(nodes, 4, 1).workers), (Ranks{2, 2, 1, 1}));
  nodes[1].first_hostname = "10.0.0.2";
  EXPECT_EQ(HostsOfPeers(ViewOfList(nodes, 4, 1).workers), (Ranks{1, 1, 1, 2}))
      << "another node has taken its place";
}

TEST(PsView, NodeThatIsNotListedSharesNoHost) {
  const job::View view = ViewOfList(
      {NodeOf(ps::Role::kServer, 0, "10.0.0.3"), NodeOf(ps::Role::kWorker, 0, "10.0.0.3"),
       NodeOf(ps::Role::kWorker, 9, "10.0.0.4")},
      3, 2);
  Ranks hosts = HostsOfPeers(view.workers);
  const Ranks servers = HostsOfPeers(view.servers);
  hosts.insert(hosts.end(), servers.begin(), servers.end());
  for (const int32_t unknown : {hosts[1], hosts[2], hosts[4]}) {
    EXPECT_GE(static_cast<size_t>(unknown), view.hosts.size());
    EXPECT_EQ(std::count(hosts.begin(), hosts.end(), unknown), 1) << unknown;
  }
}

TEST(PsView, LoopbackAddressesAreOneHost) {
  const job::View view = ViewOfList(
      {NodeOf(ps::Role::kWorker, 0, "127.0.0.2"), NodeOf(ps::Role::kWorker, 1, "127.0.0.3"),
       NodeOf(ps::Role::kServer, 0, "127.0.0.1"), NodeOf(ps::Role::kServer, 1, "::1")},
      2, 2);
  EXPECT_EQ(view.hosts.size(), 1U);
  EXPECT_EQ(HostsOfPeers(view.workers), (Ranks{0, 0}));
  EXPECT_EQ(HostsOfPeers(view.servers), (Ranks{0, 0}));
}

TEST(PsView, HostHasTheLowestRateOfItsNodes) {
  const job::View view =
      ViewOfList({NodeOf(ps::Role::kWorker, 0, "a", 1000), NodeOf(ps::Role::kServer, 0, "a", 500),
                  NodeOf(ps::Role::kServer, 1, "b", 2000), NodeOf(ps::Role::kServer, 2, "c")},
                 1, 3);
  EXPECT_EQ(view.hosts, (std::vector<job::Host>{{500}, {2000}, {0}}));
  EXPECT_TRUE(ViewOfList({}, 1, 1).hosts.empty());
}

}  // namespace
}  // namespace bs::node
