#include "node/shard_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace bs::node {
namespace {

// Cores of two sockets, numbered in turn as many machines do.
std::vector<NumaNode> TwoNodes() {
  return {{.id = 0, .cores = {0, 2, 4, 6}}, {.id = 1, .cores = {1, 3, 5, 7}}};
}

TEST(PlaceShards, EachShardHasACoreOfTheNodeOfItsMemory) {
  const std::vector<NumaNode> nodes = TwoNodes();
  for (const int32_t wanted : {0, 1, 2, 3, 5, 8, 20}) {
    for (const int32_t rank : {0, 1, 2, 7}) {
      for (const ShardPlace& place : PlaceShards(nodes, wanted, rank)) {
        const std::vector<int>& cores = nodes.at(static_cast<size_t>(place.node)).cores;
        EXPECT_NE(std::find(cores.begin(), cores.end(), place.core), cores.end())
            << "core " << place.core << " is not of node " << place.node;
      }
    }
  }
}

TEST(PlaceShards, OneForEachCoreButTheFirstOfEachNode) {
  std::set<int> cores;
  std::map<int, int> of_node;
  for (const ShardPlace& place : PlaceShards(TwoNodes(), 0, 0)) {
    cores.insert(place.core);
    EXPECT_EQ(place.index, of_node[place.node]++);
  }
  EXPECT_EQ(cores, (std::set<int>{2, 3, 4, 5, 6, 7}));
}

TEST(PlaceShards, AsManyAsAskedForAreSpreadOverTheNodes) {
  std::map<int, int> of_node;
  for (const ShardPlace& place : PlaceShards(TwoNodes(), 5, 0)) ++of_node[place.node];
  EXPECT_EQ(of_node, (std::map<int, int>{{0, 3}, {1, 2}}));
}

TEST(PlaceShards, ServersOfOneHostBeginAtDifferentCores) {
  const auto first = [](int32_t rank) { return PlaceShards(TwoNodes(), 2, rank).at(0).core; };
  EXPECT_EQ((std::set<int>{first(0), first(1), first(2), first(3)}), (std::set<int>{0, 2, 4, 6}));
}

TEST(PlaceShards, AQuotaBoundsTheirNumberUnlessItIsSet) {
  const auto count = [](double quota, int32_t wanted) {
    return PlaceShards(TwoNodes(), wanted, 0, quota).size();
  };
  EXPECT_EQ(count(0.5, 0), 1U);
  EXPECT_EQ(count(1.5, 0), 1U);
  EXPECT_EQ(count(3.5, 0), 3U);
  EXPECT_EQ(count(64, 0), 6U);
  EXPECT_EQ(count(0.5, 5), 5U);
}

TEST(PlaceShards, AHostOfOneCoreHasOneShard) {
  const std::vector<ShardPlace> places = PlaceShards({{.id = 3, .cores = {9}}}, 0, 2);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].node, 3);
  EXPECT_EQ(places[0].core, 9);
}

TEST(DispatcherBytes, ASingleShardThatWasNotAskedForLeavesThePartitionsToBsIo) {
  EXPECT_EQ(DispatcherBytes(1, 0), uint64_t{1} << 20U);
  EXPECT_EQ(DispatcherBytes(1, 1), uint64_t{16} << 10U) << "a thread for sums was asked for";
  EXPECT_EQ(DispatcherBytes(2, 0), uint64_t{16} << 10U);
  EXPECT_EQ(DispatcherBytes(8, 8), uint64_t{16} << 10U);
}

}  // namespace
}  // namespace bs::node
