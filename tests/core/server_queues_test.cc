// ServerQueues: shares, what an idle server may claim, urgency, credit, and a random schedule.
#include "core/server_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace bs::core {
namespace {

Item ItemOf(uint64_t size_bytes, Priority priority = 0) {
  return {.priority = priority, .size_bytes = size_bytes, .token = nullptr, .index = 0};
}

void SubmitMany(ServerQueues* queues, uint32_t server, int count, Priority priority = 0) {
  for (int i = 0; i < count; ++i) queues->Submit(server, ItemOf(100, priority));
}

// Starts what may start, in turns as the Core does; returns how many each server started.
std::vector<int> StartAll(ServerQueues* queues) {
  std::vector<int> counts(queues->num_servers());
  bool started = true;
  while (started) {
    started = false;
    for (uint32_t server = 0; server < queues->num_servers(); ++server) {
      if (!queues->Next(server)) continue;
      ++counts[server];
      started = true;
    }
  }
  return counts;
}

// Gives three servers with a credit of 200 bytes ten partitions each, and starts two of each.
void SpendAllCredit(ServerQueues* queues) {
  for (uint32_t server = 0; server < 3; ++server) SubmitMany(queues, server, 10);
  ASSERT_EQ(StartAll(queues), (std::vector<int>{2, 2, 2}));
}

TEST(ServerQueues, AServerWithoutCreditHoldsTheOtherServersBack) {
  ServerQueues queues(3, 200, {});
  SpendAllCredit(&queues);
  queues.Return(0, 200);
  queues.Return(1, 200);
  // Server 2 has started 2.  The others may be one ahead, and start one more then.
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{2, 2, 0}));
  queues.Return(0, 200);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 0, 0}));
  queues.Return(2, 100);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 0, 1}));
}

TEST(ServerQueues, ServersStartInProportionToTheirShares) {
  ServerQueues queues(3, 100, {.weights = {1, 2, 3}});
  for (uint32_t server = 0; server < 3; ++server) SubmitMany(&queues, server, 1000);
  std::vector<int> counts(3);
  for (int round = 0; round < 600; ++round) {
    const std::vector<int> started = StartAll(&queues);
    for (uint32_t server = 0; server < 3; ++server) {
      ASSERT_LE(started[server], 1);
      counts[server] += started[server];
      if (started[server] > 0) queues.Return(server, 100);
    }
  }
  // A partition advances the servers by 200, 100 and 67 bytes over their shares.
  EXPECT_NEAR(counts[0], counts[2] / 3.0, 2.0);
  EXPECT_NEAR(counts[1], counts[2] * 2 / 3.0, 2.0);
  EXPECT_EQ(counts[2], 600);
}

TEST(ServerQueues, AServerWithNothingToDoHoldsNoneAndSavesNothingUp) {
  ServerQueues queues(2, 1000, {});
  SubmitMany(&queues, 0, 50);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(StartAll(&queues), (std::vector<int>{10, 0}));
    queues.Return(0, 1000);
  }
  // Server 1 begins where server 0 is, though that has nothing queued any more.
  SubmitMany(&queues, 1, 20);
  SubmitMany(&queues, 0, 20);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{10, 10}));
}

TEST(ServerQueues, AnUrgentPartitionWaitsForNoServerWithLessUrgentPartitions) {
  ServerQueues queues(2, 100, {});
  SubmitMany(&queues, 0, 10);
  SubmitMany(&queues, 1, 10);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 1}));
  queues.Return(0, 100);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 0}));
    queues.Return(0, 100);
  }
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 0}));  // two ahead
  SubmitMany(&queues, 0, 1, /*priority=*/1);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 0}));
  queues.Return(0, 100);
  SubmitMany(&queues, 1, 1, /*priority=*/2);
  SubmitMany(&queues, 0, 1, /*priority=*/1);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 0}));  // server 1's is more urgent
}

// Returns how many partitions each server started, with credit for one at a time.
std::vector<int> StartRounds(ServerQueues* queues, int rounds) {
  std::vector<int> counts(queues->num_servers());
  for (int round = 0; round < rounds; ++round) {
    const std::vector<int> started = StartAll(queues);
    for (uint32_t server = 0; server < queues->num_servers(); ++server) {
      counts[server] += started[server];
      if (started[server] > 0) queues->Return(server, 100);
    }
  }
  return counts;
}

TEST(ServerQueues, AServerWithoutAShareIsAnAverageOne) {
  ServerQueues queues(3, 100, {.weights = {0, 1, 5}});  // the average is 2
  for (uint32_t server = 0; server < 3; ++server) SubmitMany(&queues, server, 1000);
  const std::vector<int> counts = StartRounds(&queues, 500);
  EXPECT_EQ(counts[2], 500);
  EXPECT_NEAR(counts[0], 200.0, 2.0);
  EXPECT_NEAR(counts[1], 100.0, 2.0);
}

TEST(ServerQueues, AServerThatWakesBeginsWhereTheBusyServersAre) {
  ServerQueues queues(3, 100, {});
  SubmitMany(&queues, 2, 40);  // far ahead, and idle then
  EXPECT_EQ(StartRounds(&queues, 40), (std::vector<int>{0, 0, 40}));
  SubmitMany(&queues, 0, 100);  // begins there, as nothing was queued
  EXPECT_EQ(StartRounds(&queues, 10), (std::vector<int>{10, 0, 0}));
  SubmitMany(&queues, 1, 100);
  SubmitMany(&queues, 2, 100);  // ten behind server 0 by what it has started
  EXPECT_EQ(StartRounds(&queues, 20), (std::vector<int>{20, 20, 20}));
}

TEST(ServerQueues, ALargeShareMayBeAheadByLess) {
  // A partition advances them by 150 and 75 bytes.
  ServerQueues queues(2, 1000, {.weights = {1, 2}});
  SubmitMany(&queues, 0, 10);
  SubmitMany(&queues, 1, 10);
  queues.SetCredit(100);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 1}));
  for (int i = 0; i < 3; ++i) {
    queues.Return(1, 100);
    EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 1})) << i;
  }
  queues.Return(1, 100);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 0}));  // 150 ahead, more than 75
}

TEST(ServerQueues, AServerBesideTheWorkerWaitsForNoServer) {
  ServerQueues queues(3, 200, {.beside = {1}});
  SpendAllCredit(&queues);
  queues.Return(0, 200);
  queues.Return(1, 200);
  // Server 0 waits for server 2 as before.
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{2, 2, 0}));
  queues.Return(0, 200);
  queues.Return(1, 200);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 2, 0}));
  queues.Return(1, 200);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{0, 2, 0}));
}

TEST(ServerQueues, CreditCountsForEachServerAndIsSetForAll) {
  ServerQueues queues(2, 100, {});
  SubmitMany(&queues, 0, 10);
  SubmitMany(&queues, 1, 10);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{1, 1}));
  queues.SetCredit(300);
  EXPECT_EQ(StartAll(&queues), (std::vector<int>{2, 2}));
  EXPECT_EQ(queues.of(1).in_flight_bytes(), 300U);
  queues.Clear();
  EXPECT_EQ(queues.of(0).queued() + queues.of(1).queued(), 0U);
}

TEST(ServerQueues, SomethingMayAlwaysStartWhileAllHaveCredit) {
  std::mt19937 random(7);
  ServerQueues queues(5, 100, {.weights = {1, 5, 0, 2, 9}});
  int queued = 0;
  for (int step = 0; step < 20000; ++step) {
    if (queued == 0 || random() % 3 == 0) {
      queues.Submit(static_cast<uint32_t>(random() % 5),
                    ItemOf(1 + random() % 150, static_cast<Priority>(random() % 3)));
      ++queued;
    }
    bool started = false;
    for (uint32_t server = 0; server < 5 && !started; ++server) {
      const std::optional<Item> item = queues.Next(server);
      if (!item) continue;
      started = true;
      --queued;
      queues.Return(server, item->size_bytes);
    }
    ASSERT_TRUE(started) << "step " << step << ", queued " << queued;
  }
}

}  // namespace
}  // namespace bs::core
