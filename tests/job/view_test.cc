// Views as values.
#include "job/view.h"

#include <gtest/gtest.h>

#include <set>

namespace bs::job {
namespace {

TEST(View, CountsItsNodes) {
  const View view = MakeView({.role = Role::kWorker, .rank = 1}, 3, 2);
  EXPECT_EQ(view.num_workers(), 3);
  EXPECT_EQ(view.num_servers(), 2);
  EXPECT_EQ(view.own.rank, 1);
  EXPECT_EQ(view.epoch, 0U);
}

TEST(View, NodesOfAMadeViewShareNoHost) {
  const View view = MakeView({}, 3, 2);
  std::set<int32_t> hosts;
  for (const Peer& worker : view.workers) hosts.insert(worker.host);
  for (const Peer& server : view.servers) hosts.insert(server.host);
  EXPECT_EQ(hosts, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(view.hosts.size(), 5U);
}

TEST(View, HasWorkersOfTheirRanksOnly) {
  const View view = MakeView({}, 2, 1);
  EXPECT_FALSE(view.has_worker(-1));
  EXPECT_TRUE(view.has_worker(0));
  EXPECT_TRUE(view.has_worker(1));
  EXPECT_FALSE(view.has_worker(2));
}

TEST(View, WithoutServersIsAView) {
  const View view = MakeView({}, 2, 0);
  EXPECT_EQ(view.num_servers(), 0);
  EXPECT_EQ(view.hosts.size(), 2U);
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
  other.hosts[0].link_rate = 1;
  EXPECT_NE(other, view);
}

TEST(View, SharedViewIsTheSame) {
  const Place own = {.role = Role::kServer, .rank = 1};
  EXPECT_EQ(*ShareView(own, 2, 2), MakeView(own, 2, 2));
}

}  // namespace
}  // namespace bs::job
