// The workers of a host, and their turns.
#include "backend/host_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace bs::backend {
namespace {

job::View ViewOf(const std::vector<int32_t>& workers, const std::vector<int32_t>& servers,
                 int32_t rank) {
  job::View view = job::MakeView({.rank = rank}, static_cast<int32_t>(workers.size()),
                                 static_cast<int32_t>(servers.size()));
  for (size_t i = 0; i < workers.size(); ++i) view.workers[i].host = workers[i];
  for (size_t i = 0; i < servers.size(); ++i) view.servers[i].host = servers[i];
  return view;
}

TEST(HostPlan, HasTheWorkersOfTheHostByRank) {
  const HostPlan plan(ViewOf({0, 1, 0, 0}, {1}, 2));
  EXPECT_TRUE(plan.in_use());
  EXPECT_EQ(plan.ranks(), (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(plan.PlaceOf(2), 1U);
  EXPECT_EQ(plan.PlaceOf(1), std::nullopt);
  EXPECT_EQ(plan.PlaceOf(4), std::nullopt);
}

TEST(HostPlan, IsNotInUseOnOneHostOrByOneWorker) {
  EXPECT_FALSE(HostPlan(ViewOf({0, 0}, {0}, 0)).in_use()) << "nothing crosses a link";
  EXPECT_FALSE(HostPlan(ViewOf({0, 1, 1}, {0}, 0)).in_use()) << "worker 0 is alone";
  EXPECT_TRUE(HostPlan(ViewOf({0, 1, 1}, {0}, 1)).in_use());
  EXPECT_TRUE(HostPlan(ViewOf({0, 0}, {1}, 0)).in_use()) << "servers apart";
  EXPECT_FALSE(HostPlan(job::MakeView({.rank = 1}, 3, 2)).in_use()) << "hosts are unknown";
}

TEST(HostPlan, CanBeInUseOnOneHostToo) {
  EXPECT_TRUE(HostPlan(ViewOf({0, 0}, {0}, 0), /*also_on_one_host=*/true).in_use());
  EXPECT_FALSE(HostPlan(ViewOf({0, 1, 1}, {0}, 0), /*also_on_one_host=*/true).in_use());
}

TEST(HostPlan, WorkersTakeTurnsByPartitionAndKey) {
  const HostPlan plan(ViewOf({0, 1, 0, 0}, {1}, 2));
  for (Key key = 0; key < 20; ++key) {
    std::map<int32_t, int> owned;
    for (uint32_t partition = 0; partition < 9; ++partition) ++owned[plan.OwnerOf(key, partition)];
    EXPECT_EQ(owned, (std::map<int32_t, int>{{0, 3}, {2, 3}, {3, 3}}));
  }
  std::map<int32_t, int> first;
  for (Key key = 0; key < 300; ++key) ++first[plan.OwnerOf(key, 0)];
  for (const auto& [rank, keys] : first) EXPECT_GT(keys, 70) << "of small keys, rank " << rank;
}

}  // namespace
}  // namespace bs::backend
