// Views as values.
#include "job/view.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

namespace bs::job {
namespace {

TEST(View, CountsItsNodes) {
  const View view = MakeView({.role = Role::kWorker, .rank = 1}, 3, 2);
  EXPECT_EQ(view.num_workers(), 3);
  EXPECT_EQ(view.num_servers(), 2);
  EXPECT_EQ(view.own.rank, 1);
  EXPECT_EQ(view.epoch, 0U);
}

TEST(View, NodesOfUnknownHostsShareNone) {
  const View view = MakeView({}, 3, 2);
  std::set<int32_t> hosts;
  for (const std::vector<Peer>* const peers : {&view.workers, &view.servers}) {
    for (const Peer& peer : *peers) {
      hosts.insert(peer.host);
      EXPECT_EQ(view.HostOf(peer), std::nullopt);
    }
  }
  EXPECT_EQ(hosts, (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST(View, HostsOfTheListAreKnown) {
  View view = MakeView({}, 2, 0);
  view.hosts.resize(1);
  EXPECT_EQ(view.HostOf(view.workers[0]), 0);
  EXPECT_EQ(view.HostOf(view.workers[1]), std::nullopt);
}

TEST(View, HasWorkersOfTheirRanksOnly) {
  const View view = MakeView({}, 2, 1);
  EXPECT_FALSE(view.has_worker(-1));
  EXPECT_TRUE(view.has_worker(0));
  EXPECT_TRUE(view.has_worker(1));
  EXPECT_FALSE(view.has_worker(2));
}

TEST(View, WorkersOfAHostAreListedByRank) {
  View view = MakeView({}, 4, 1);
  view.hosts.resize(2);
  for (const size_t rank : {0U, 2U}) view.workers[rank].host = 0;
  view.workers[1].host = 1;
  EXPECT_EQ(view.WorkersBeside(2), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(view.WorkersBeside(1), std::vector<int32_t>{1});
  EXPECT_EQ(view.WorkersBeside(3), std::vector<int32_t>{3}) << "its host is not known";
}

TEST(View, NamesTheServersBesideItsNode) {
  View view = MakeView({.rank = 1}, 2, 4);
  EXPECT_EQ(view.ServersBeside(), std::vector<uint32_t>{}) << "no host is known";
  view.hosts.resize(2);
  view.workers[0].host = view.servers[0].host = 0;
  view.workers[1].host = view.servers[1].host = view.servers[3].host = 1;
  EXPECT_EQ(view.ServersBeside(), (std::vector<uint32_t>{1, 3}));
  view.own = {.role = Role::kServer, .rank = 0};
  EXPECT_EQ(view.ServersBeside(), std::vector<uint32_t>{0});
}

TEST(View, WithoutServersIsAView) {
  const View view = MakeView({}, 2, 0);
  EXPECT_EQ(view.num_workers(), 2);
  EXPECT_EQ(view.num_servers(), 0);
}

TEST(View, DiffersInEveryPart) {
  const View view = MakeView({}, 2, 1);
  View other = view;
  EXPECT_EQ(other, view);
  other.epoch = 1;
  EXPECT_NE(other, view);
  other = view;
  other.workers[1].host = 0;
  EXPECT_NE(other, view);
  other = view;
  other.own.incarnation = 1;
  EXPECT_NE(other, view);
  other = view;
  other.hosts = {{.link_rate = 1}};
  EXPECT_NE(other, view);
}

TEST(View, SharedViewIsTheSame) {
  const Place own = {.role = Role::kServer, .rank = 1};
  EXPECT_EQ(*ShareView(own, 2, 2), MakeView(own, 2, 2));
}

}  // namespace
}  // namespace bs::job
