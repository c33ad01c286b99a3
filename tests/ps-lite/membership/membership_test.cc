// Membership: rendezvous, ranks, barriers and good ends of native nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

TEST(Rendezvous, NativeNodesMeetInAnyOrderOfStart) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Job job(seed);
    NativeNode* const server = job.AddNative(Role::kServer);
    NativeNode* const a = job.AddNative(Role::kWorker, "10.0.0.1");
    NativeNode* const b = job.AddNative(Role::kWorker, "10.0.0.2");
    const auto some = [&] { return milliseconds(job.clock.Uniform(0, 20000)); };
    job.StartCoordinator(some());
    for (const auto& node : job.natives) node->Start(some());
    job.Run(seconds(25));
    ASSERT_TRUE(server->ready() && a->ready() && b->ready()) << "seed " << seed;
    EXPECT_EQ(b->view->rank, 0);  // the higher host
    EXPECT_EQ(a->view->rank, 1);
    EXPECT_EQ(a->view->own_id, WorkerId(1));
    EXPECT_EQ(server->view->own_id, ServerId(0));
    EXPECT_EQ(a->view->num_workers, 2);
    EXPECT_EQ(a->view->nodes.size(), 4U);
    EXPECT_EQ(a->calls_of_ready, 1);
  }
}

TEST(Rendezvous, BroadcastListsHostsDescendingPortsAscendingAndTheSchedulerLast) {
  Job job(1);
  job.options.num_workers = 3;
  job.options.num_servers = 2;
  StockNode* const w1 = job.AddStock(Role::kWorker, "127.0.0.10", 50);
  StockNode* const s1 = job.AddStock(Role::kServer, "127.0.0.1", 40);
  StockNode* const w2 = job.AddStock(Role::kWorker, "127.0.0.10", 60);
  StockNode* const s0 = job.AddStock(Role::kServer, "127.0.0.10", 55);
  StockNode* const w0 = job.AddStock(Role::kWorker, "127.0.0.2", 999);
  job.StartAll();
  job.Run(seconds(1));
  const std::vector<Node> want = {
      {Role::kWorker, 9, "127.0.0.2", 999, false, 0},
      {Role::kWorker, 11, "127.0.0.10", 50, false, 0},
      {Role::kServer, 8, "127.0.0.10", 55, false, 0},
      {Role::kWorker, 13, "127.0.0.10", 60, false, 0},
      {Role::kServer, 10, "127.0.0.1", 40, false, 0},
      {Role::kScheduler, 1, "10.0.0.100", 9091, false, 0},
  };
  for (StockNode* const node : {w0, w1, w2, s0, s1}) EXPECT_EQ(node->list, want);
  // Sent in the order of group 6: all workers by rank, then all servers.
  EXPECT_THAT(w0->list_timestamps, ElementsAre(0));
  EXPECT_THAT(w1->list_timestamps, ElementsAre(1));
  EXPECT_THAT(w2->list_timestamps, ElementsAre(2));
  EXPECT_THAT(s0->list_timestamps, ElementsAre(3));
  EXPECT_THAT(s1->list_timestamps, ElementsAre(4));
  for (const auto& node : job.stocks) EXPECT_EQ(node->barrier_answers, 1);
}

TEST(Rendezvous, CustomersOfOneProcessShareAnId) {
  Job job(1);
  job.options.num_workers = 3;
  StockNode* const twice = job.AddStock(Role::kWorker, "10.0.0.9", 70, 2);
  StockNode* const once = job.AddStock(Role::kWorker, "10.0.0.8", 70);
  NativeNode* const server = job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(1));
  ASSERT_EQ(once->list.size(), 5U);
  EXPECT_EQ(once->list.at(0), (Node{Role::kWorker, 9, "10.0.0.9", 70, false, 0}));
  EXPECT_EQ(once->list.at(1), (Node{Role::kWorker, 9, "10.0.0.9", 70, false, 1}));
  EXPECT_EQ(once->id, 13);  // rank 1 is used up
  EXPECT_EQ(twice->list_timestamps.size(), 1U);
  // The start barrier counted both customers and is answered once for each process.
  EXPECT_EQ(twice->barrier_answers, 1);
  EXPECT_EQ(once->barrier_answers, 1);
  EXPECT_TRUE(server->ready());
}

TEST(Rendezvous, MixedRingOfStockAndNativeNodesStarts) {
  Job job(3);
  job.options.num_servers = 2;
  StockNode* const worker = job.AddStock(Role::kWorker);
  StockNode* const server = job.AddStock(Role::kServer);
  job.options.num_workers = 1;
  job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(2));
  EXPECT_TRUE(job.natives.at(0)->ready());
  EXPECT_EQ(worker->barrier_answers, 1);
  EXPECT_EQ(server->barrier_answers, 1);
}

TEST(Rendezvous, WorkerIsReadyOnlyWhenEveryServerIs) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    bs::sim::SimNetworkOptions network;
    network.delay_max = seconds(2);
    Job job(seed, network);
    job.options.num_servers = 2;
    NativeNode* const s0 = job.AddNative(Role::kServer);
    NativeNode* const s1 = job.AddNative(Role::kServer);
    NativeNode* const w0 = job.AddNative(Role::kWorker);
    job.AddNative(Role::kWorker);
    job.StartAll();
    while (!w0->ready() && job.clock.Now() < bs::TimePoint(seconds(50))) job.clock.Step();
    ASSERT_TRUE(w0->ready());
    EXPECT_TRUE(s0->ready() && s1->ready());
  }
}

// Two native workers and a server, ready.
class NativeJob : public ::testing::Test {
 protected:
  NativeJob() {
    server = job.AddNative(Role::kServer);
    w0 = job.AddNative(Role::kWorker, "10.0.0.2");
    w1 = job.AddNative(Role::kWorker, "10.0.0.1");
    job.StartAll();
    job.Run(seconds(1));
    EXPECT_TRUE(server->ready() && w0->ready() && w1->ready());
  }
  Job job{5};
  NativeNode* server;
  NativeNode* w0;
  NativeNode* w1;
};

TEST_F(NativeJob, DataTravelsBetweenWorkersAndServers) {
  w0->Send(ServerId(0), "up");
  server->Send(WorkerId(1), "down");
  w0->Send(WorkerId(1), "workers are not connected");
  job.Run(seconds(1));
  EXPECT_THAT(server->data, ElementsAre("9: up"));
  EXPECT_THAT(w1->data, ElementsAre("8: down"));
}

TEST_F(NativeJob, BarrierWaitsForEveryWorker) {
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(30));
  EXPECT_TRUE(w0->barriers.empty());
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_THAT(w0->barriers, ::testing::SizeIs(1));
  EXPECT_TRUE(w0->barriers.at(0).ok());
  EXPECT_TRUE(w1->barriers.at(0).ok());
}

TEST_F(NativeJob, BarriersOfOneNodeEndInOrder) {
  for (int i = 0; i < 3; ++i) w0->Barrier(kWorkerGroup);
  for (int i = 0; i < 2; ++i) w1->Barrier(kWorkerGroup);
  job.Run(seconds(5));
  EXPECT_EQ(w0->barriers.size(), 2U);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(5));
  EXPECT_EQ(w0->barriers.size(), 3U);
  EXPECT_EQ(w1->barriers.size(), 3U);
}

TEST_F(NativeJob, BarrierOfAllNodesNeedsTheServersToo) {
  w0->Barrier(kEveryone);
  w1->Barrier(kEveryone);
  job.Run(seconds(5));
  EXPECT_TRUE(w0->barriers.empty());
  server->Barrier(kEveryone);
  job.Run(seconds(1));
  EXPECT_EQ(server->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.size(), 1U);
  EXPECT_EQ(server->shutdowns, 0);  // it was not the final one
}

TEST_F(NativeJob, LateBarrierEndsWithTheNamesOfTheMissingWorkers) {
  w0->Barrier(kWorkerGroup);
  // A live worker may be late: rank 0 evaluates, or writes a checkpoint.
  job.Run(job.options.straggler_timeout - seconds(1));
  EXPECT_TRUE(w0->barriers.empty());
  job.Run(seconds(2));
  ASSERT_EQ(w0->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.at(0).ToString(),
            "kDeadlineExceeded: barrier of the workers: not complete in 1800 s, waiting for worker "
            "1 (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
  EXPECT_TRUE(w0->failures.empty());
}

TEST_F(NativeJob, BarrierWithAWorkerThatLeftFailsNamingIt) {
  w0->Barrier(kWorkerGroup);
  w1->Leave();
  job.Run(seconds(1));
  ASSERT_EQ(w0->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.at(0).ToString(),
            "kUnavailable: barrier of the workers: worker 1 left the job");
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barriers.size(), 2U);
}

TEST(Goodbyes, CallsThatMissAWorkerWaitForItsReason) {
  Job job(5);
  job.options.num_workers = 2;
  job.options.reason_patience = seconds(2);
  NativeNode* const server = job.AddNative(Role::kServer);
  NativeNode* const w0 = job.AddNative(Role::kWorker, "10.0.0.2");
  NativeNode* const w1 = job.AddNative(Role::kWorker, "10.0.0.1");
  job.StartAll();
  job.Run(seconds(1));
  w0->Barrier(kWorkerGroup);
  w1->Leave();
  job.Run(seconds(1));
  EXPECT_TRUE(w1->left.has_value()) << "the worker itself does not wait";
  EXPECT_TRUE(server->goodbyes.empty() && w0->barriers.empty());
  job.Run(seconds(2));
  EXPECT_THAT(server->goodbyes, ElementsAre("kUnavailable: worker 1 left the job"));
  ASSERT_EQ(w0->barriers.size(), 1U);
}

TEST_F(NativeJob, TheReasonOfAGoodbyeReachesBarriersAndServersAndFailsNothingElse) {
  w1->Leave("KeyError: 'x'");
  job.Run(seconds(1));
  EXPECT_THAT(server->goodbyes, ElementsAre("kUnavailable: worker 1 gave up: KeyError: 'x'"));
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  ASSERT_EQ(w0->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.at(0).ToString(),
            "kUnavailable: barrier of the workers: worker 1 gave up: KeyError: 'x'");
  w0->Leave();
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
}

TEST_F(NativeJob, ALongReasonIsCutBetweenCharacters) {
  std::string reason = "x";
  while (reason.size() < 100'000) reason += "\u00e9";
  w1->Leave(reason);
  job.Run(seconds(1));
  ASSERT_EQ(server->goodbyes.size(), 1U);
  EXPECT_EQ(server->goodbyes.at(0), "kUnavailable: worker 1 gave up: " + reason.substr(0, 1023));
}

TEST_F(NativeJob, BarrierOfAForeignGroupIsRefused) {
  w0->Barrier(kServerGroup);
  w1->Barrier(99);
  job.Run(seconds(1));
  ASSERT_EQ(w0->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.at(0).code(), bs::StatusCode::kInvalidArgument);
  ASSERT_EQ(w1->barriers.size(), 1U);
  EXPECT_EQ(w1->barriers.at(0).code(), bs::StatusCode::kInvalidArgument);
}

TEST_F(NativeJob, JobEndsWhenAllWorkersLeft) {
  w1->Leave();
  job.Run(seconds(10));
  EXPECT_TRUE(w1->left.value().ok());
  EXPECT_THAT(server->workers_left, ElementsAre(1));
  EXPECT_FALSE(job.finished);
  w0->Leave();
  job.Run(seconds(10));
  EXPECT_TRUE(w0->left.value().ok());
  EXPECT_EQ(server->shutdowns, 1);
  EXPECT_TRUE(server->left.value().ok());
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
  EXPECT_EQ(job.calls_of_finished, 1);
  for (const auto& node : job.natives) EXPECT_TRUE(node->failures.empty());
}

TEST_F(NativeJob, CloseEndsEveryPendingCallbackOnceWithCancelled) {
  w0->Barrier(kWorkerGroup);
  w0->Barrier(kWorkerGroup);
  job.Run(milliseconds(100));
  w0->Close();
  job.Run(milliseconds(100));
  ASSERT_EQ(w0->barriers.size(), 2U);
  EXPECT_EQ(w0->barriers.at(0).code(), bs::StatusCode::kCancelled);
  EXPECT_EQ(w0->barriers.at(1).code(), bs::StatusCode::kCancelled);
  w0->Barrier(kWorkerGroup);
  job.Run(milliseconds(100));
  EXPECT_EQ(w0->barriers.size(), 3U);
  EXPECT_EQ(w0->barriers.back().code(), bs::StatusCode::kCancelled);
}

TEST(Rendezvous, ClosingWhileRegisteringCancels) {
  Job job(1);
  NativeNode* const node = job.AddNative(Role::kWorker);
  node->Start();
  job.Run(seconds(3));
  node->Close();
  job.Run(seconds(1));
  ASSERT_TRUE(node->refused);
  EXPECT_EQ(node->refused->code(), bs::StatusCode::kCancelled);
  EXPECT_EQ(node->calls_of_ready, 1);
}

}  // namespace
}  // namespace ps::test
