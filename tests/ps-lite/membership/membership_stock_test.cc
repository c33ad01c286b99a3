// Membership with stock nodes: start, barriers, attached workers, heartbeats, the final barrier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two stock workers and native servers, running.
class StockJob : public ::testing::Test {
 protected:
  StockJob() {
    job.options.num_servers = 2;
    w0 = job.AddStock(Role::kWorker, "10.0.0.9");
    w1 = job.AddStock(Role::kWorker, "10.0.0.8");
    s0 = job.AddNative(Role::kServer, "10.0.0.7");
    s1 = job.AddNative(Role::kServer, "10.0.0.6");
    job.StartAll();
    job.Run(seconds(1));
    EXPECT_EQ(w0->barrier_answers, 1);
  }
  // Stock workers end so: barrier, kStopServer, final barrier.
  void EndStock() {
    w0->Barrier(kWorkerGroup);
    w1->Barrier(kWorkerGroup);
    job.Run(seconds(1));
    s0->JoinFinalBarrier();
    s1->JoinFinalBarrier();
    w0->Barrier(kEveryone);
    w1->Barrier(kEveryone);
    job.Run(seconds(1));
    EXPECT_EQ(w0->barrier_answers, 3);
    EXPECT_EQ(w1->barrier_answers, 3);
    w0->Close();
    w1->Close();
  }
  NativeNode* Attach(int32_t rank) {
    NativeNode* const node = job.AddAttached(rank);
    node->Start();
    job.Run(seconds(2));
    return node;
  }
  Job job{7};
  StockNode* w0;
  StockNode* w1;
  NativeNode* s0;
  NativeNode* s1;
};

TEST_F(StockJob, EndsWithTheFinalBarrier) {
  EndStock();
  job.Run(seconds(10));
  EXPECT_EQ(s0->shutdowns, 1);
  EXPECT_EQ(s1->shutdowns, 1);
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
  EXPECT_TRUE(s0->failures.empty());
}

TEST_F(StockJob, StockBarrierIsNotReleasedByRepeats) {
  w0->Barrier(kWorkerGroup);
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 1);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 2);
  EXPECT_EQ(w1->barrier_answers, 2);
}

TEST_F(StockJob, StockBarrierThatAWorkerDoesNotComeToEndsTheJobAtTheDeadline) {
  w0->Barrier(kWorkerGroup);
  job.Run(job.options.straggler_timeout - seconds(5));
  w0->Barrier(kWorkerGroup);  // a repeat starts nothing anew
  EXPECT_FALSE(job.finished);
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(
      job.finished->message(),
      AllOf(HasSubstr("worker 0 has waited 180"),
            HasSubstr(" at a barrier for worker 1 (BYTESCHEDULER_STRAGGLER_TIMEOUT): if ")));
}

// A stock worker of the job that lives, and whose own connection to a node ends.
class StockInbound : public StockJob {
 protected:
  StockInbound() {
    Push(7);
    EXPECT_THAT(s0->data, ElementsAre("11: values"));
  }
  void Push(int32_t timestamp) {
    Meta push;
    push.request = true;
    push.push = true;
    push.timestamp = timestamp;
    w1->Send(ServerId(0), push, "values");
    job.Run(seconds(1));
  }
  // To server 0, or to the scheduler node.
  void Part(bool server, bool for_good) {
    job.network.Part(w1->transport(), server ? s0->transport() : job.coordinator_transport(),
                     for_good);
    job.Run(seconds(5));
  }
  void ExpectLost(const std::string& why) {
    ASSERT_TRUE(job.finished);
    EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 1 (10.0.0.8:4712): " + why));
    for (const NativeNode* server : {s0, s1}) {
      EXPECT_THAT(server->failures.at(0).message(), HasSubstr(why));
    }
    ASSERT_FALSE(w1->words.empty()) << "its process lives";
    EXPECT_THAT(w1->words.front(), HasSubstr(why));
  }
};

TEST_F(StockInbound, AWorkerThatOpensNoOtherIsLost) {
  Part(true, true);
  ExpectLost("connection closed, and no other opened in 1 s");
}

TEST_F(StockInbound, SoIsOneThatTheSchedulerNodeDoesNotHear) {
  Part(false, true);
  ExpectLost("connection closed, and no other opened in 1 s");
}

TEST_F(StockInbound, AWorkerWithALostMessageIsLostThoughItComesBack) {
  Part(true, false);
  ExpectLost("connection closed in the middle of a message, which is lost");
}

TEST_F(StockInbound, AWorkerWithALostControlMessageIsLostToo) {
  Part(false, false);
  ExpectLost("connection closed in the middle of a message, which is lost");
}

TEST_F(StockInbound, ANativeWorkerBesideTheLostWorkerTellsOfTheLoss) {
  NativeNode* const beside = Attach(1);
  Part(true, true);
  EXPECT_THAT(beside->failures.at(0).message(), HasSubstr("lost worker 1 (10.0.0.8:4712)"));
  EXPECT_TRUE(w1->words.empty());
}

TEST_F(StockInbound, AWorkerThatSendsAgainIsNot) {
  Meta ack;
  ack.is_control = true;
  ack.control.command = Command::kAck;
  w1->Send(ServerId(0), ack);
  job.Run(seconds(1));
  Part(true, false);
  EXPECT_FALSE(job.finished);
}

TEST_F(StockInbound, AConnectionThatComesBackIsNoLoss) {
  for (StockNode* const worker : {w0, w1})
    job.network.CutOff(worker->transport(), milliseconds(900));
  job.Run(seconds(10));
  EXPECT_FALSE(job.finished);
  EndStock();
}

TEST_F(StockInbound, AWorkerThatIsSilentAfterItReconnectsIsLost) {
  job.network.CutOff(w1->transport(), milliseconds(900));
  job.Run(job.options.straggler_timeout - seconds(5));
  Push(8);
  EXPECT_THAT(s0->data, ElementsAre("11: values", "11: values"));
  job.Run(job.options.straggler_timeout - seconds(1));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(6));
  ExpectLost("after one of its connections was closed, with which messages may be lost, nothing");
}

TEST_F(StockInbound, SoIsOneToWhichOursCameBack) {
  job.network.Part(s0->transport(), w1->transport(), false);
  job.Run(job.options.straggler_timeout - seconds(1));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(6));
  ExpectLost("after one of its connections was closed, with which messages may be lost, nothing");
}

TEST_F(StockInbound, AWorkerThatIsSilentAndLostNoConnectionIsNotLost) {
  job.Run(3 * job.options.straggler_timeout);
  EXPECT_FALSE(job.finished);
  EndStock();
}

TEST_F(StockInbound, AtTheEndItDoesNotMatter) {
  s0->JoinFinalBarrier();
  Part(true, false);
  EXPECT_FALSE(job.finished);
  EXPECT_TRUE(w1->words.empty());
}

TEST(StockStart, AStockWorkerThatNeverComesToTheStartBarrierIsNamedInTheTimeOfTheStart) {
  using std::chrono::microseconds;
  Job job(7, {.delay_min = microseconds(1000), .delay_max = microseconds(1000)});
  StockNode* const stopped = job.AddStock(Role::kWorker);
  job.AddStock(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(microseconds(1500));  // it has registered
  job.network.Mute(stopped->transport());
  job.Run(job.options.timeout + seconds(1));
  ASSERT_EQ(server->failures.size(), 1U);
  EXPECT_THAT(server->failures.front().ToString(),
              HasSubstr("barrier of all nodes: not complete in 60 s, waiting for worker 0 "
                        "(BYTESCHEDULER_TIMEOUT)"));
}

// Each of them comes while the scheduler node does not know yet that the one before is gone.
TEST(StockStart, ANodeThatDiesBeforeTheJobBeginsLeavesItsPlaceToTheNextEachTime) {
  for (const Role role : {Role::kWorker, Role::kServer}) {
    Job job(7);
    job.options.num_workers = 1;
    job.StartCoordinator();
    StockNode* node = job.AddStock(role);
    node->Start();
    job.Run(seconds(1));
    for (int deaths = 1; deaths <= 3; ++deaths) {
      node->Kill();
      node = job.AddStock(role, "10.0.0.9", deaths == 2 ? 4711 : 0);
      if (deaths < 3) node->Start(milliseconds(300));
      job.Run(seconds(3));
      EXPECT_EQ(job.CountLogged(" is gone before all nodes were there (connection closed); another "
                                "may take its place; waiting for 1 of 1 worker, 1 of 1 server"),
                deaths);
    }
    node->Start();
    job.AddStock(role == Role::kWorker ? Role::kServer : Role::kWorker)->Start();
    job.Run(seconds(2));
    EXPECT_EQ(node->barrier_answers, 1);
    EXPECT_TRUE(node->data.empty());
  }
}

TEST(StockStart, AWorkerRestartedAtItsAddressHasItsPlace) {
  Job job(7);
  job.StartCoordinator();
  job.AddStock(Role::kServer)->Start();
  StockNode* node = job.AddStock(Role::kWorker, "10.0.0.9", 5000);
  node->Start();
  job.Run(seconds(1));
  node->Kill();
  node = job.AddStock(Role::kWorker, "10.0.0.9", 5000);
  node->Start(milliseconds(300));
  job.Run(seconds(40));
  EXPECT_FALSE(job.Logged("is gone before all nodes were there"));
  job.AddStock(Role::kWorker)->Start();
  job.Run(seconds(2));
  EXPECT_EQ(node->barrier_answers, 1);
}

TEST(StockStart, AnUnreachableWorkerLeavesItsPlaceAfterTheHeartbeatTimeout) {
  Job job(7);
  job.options.num_workers = 1;
  StockNode* const gone = job.AddStock(Role::kWorker);
  job.StartCoordinator();
  gone->Start();
  job.Run(milliseconds(1));
  gone->Kill();
  StockNode* const next = job.AddStock(Role::kWorker);
  next->Start(seconds(1));
  job.Run(seconds(29));
  EXPECT_FALSE(job.Logged("is gone before all nodes were there"));
  job.Run(seconds(4));
  EXPECT_TRUE(job.Logged("is gone before all nodes were there (no connection to "));
  job.AddStock(Role::kServer)->Start();
  job.Run(seconds(2));
  EXPECT_EQ(next->barrier_answers, 1);
}

TEST_F(StockJob, AttachedWorkerIsKnownToServersBeforeItIsReady) {
  NativeNode* const a1 = Attach(1);
  ASSERT_TRUE(a1->ready());
  EXPECT_EQ(a1->view->rank, 1);
  EXPECT_EQ(a1->view->own_id, AttachedId(1));
  a1->Send(ServerId(0), "gradient");
  job.Run(seconds(1));
  EXPECT_THAT(s0->data, ElementsAre(std::to_string(AttachedId(1)) + ": gradient"));
  s0->Send(AttachedId(1), "sum");
  job.Run(seconds(1));
  EXPECT_THAT(a1->data, ElementsAre("8: sum"));
}

TEST_F(StockJob, AttachedWorkersHaveTheirOwnBarriers) {
  NativeNode* const a0 = Attach(0);
  a0->Barrier(kWorkerGroup);
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  NativeNode* const a1 = Attach(1);
  EXPECT_TRUE(a0->barriers.empty());
  a1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(a0->barriers.size(), 1U);
  EXPECT_EQ(a1->barriers.size(), 1U);
  EXPECT_EQ(w0->barrier_answers, 1);  // still waits for the other stock worker
}

TEST_F(StockJob, OneAttachedWorkerARankUntilItLeaves) {
  NativeNode* const first = Attach(0);
  NativeNode* const second = Attach(0);
  ASSERT_TRUE(second->refused);
  EXPECT_THAT(second->refused->ToString(), HasSubstr("kAlreadyExists"));
  EXPECT_THAT(second->refused->message(), HasSubstr("cannot attach to worker 0"));
  first->Leave();
  job.Run(seconds(2));
  EXPECT_THAT(s1->workers_left, ElementsAre(0));
  NativeNode* const third = Attach(0);
  EXPECT_TRUE(third->ready());
  third->Send(ServerId(1), "back");
  job.Run(seconds(1));
  EXPECT_EQ(s1->data.size(), 1U);
}

TEST_F(StockJob, AttachingWithARankOutOfRangeIsRefused) {
  NativeNode* const node = Attach(2);
  ASSERT_TRUE(node->refused);
  EXPECT_THAT(node->refused->message(), HasSubstr("cannot attach as rank 2: the job has 2"));
  EXPECT_FALSE(job.finished);
}

TEST_F(StockJob, ServersStayUntilAttachedWorkersLeft) {
  NativeNode* const a0 = Attach(0);
  NativeNode* const a1 = Attach(1);
  a1->Leave();
  EndStock();
  job.Run(seconds(10));
  EXPECT_EQ(s0->shutdowns, 0);
  EXPECT_FALSE(job.finished);
  a0->Leave();
  job.Run(seconds(10));
  EXPECT_TRUE(a0->left.value().ok());
  EXPECT_EQ(s0->shutdowns, 1);
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
}

TEST_F(StockJob, AttachedWorkerThatNeverLeavesDelaysTheEndByTheTimeoutOnly) {
  NativeNode* const a0 = Attach(0);
  EndStock();
  job.Run(seconds(70));
  EXPECT_EQ(a0->shutdowns, 1);
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
}

// Processes that end behind close(), without the destructor of MXNet's own store.
class EndedAfterLeaving : public StockJob {
 protected:
  EndedAfterLeaving() {
    NativeNode* const a0 = Attach(0);
    NativeNode* const a1 = Attach(1);
    a0->Leave();
    a1->Leave();
    job.Run(seconds(5));
  }
  void ExpectGoodEnd() {
    ASSERT_TRUE(job.finished);
    EXPECT_TRUE(job.finished->ok()) << job.finished->ToString();
    EXPECT_EQ(s0->shutdowns, 1);
    EXPECT_EQ(s1->shutdowns, 1);
  }
};

TEST_F(EndedAfterLeaving, WorkerOneIsNotLostAndItsAbsenceHoldsUpNoBarrier) {
  w1->Kill();
  job.Run(seconds(40));
  EXPECT_FALSE(job.finished);
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 2);
  s0->JoinFinalBarrier();
  s1->JoinFinalBarrier();
  w0->Barrier(kEveryone);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 3);
  w0->Close();
  job.Run(seconds(10));
  ExpectGoodEnd();
}

TEST_F(EndedAfterLeaving, WorkerZeroWouldHaveStoppedTheServers) {
  w0->Kill();
  job.Run(seconds(40));
  EXPECT_FALSE(job.finished);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  w1->Barrier(kEveryone);
  job.Run(seconds(1));
  EXPECT_EQ(w1->barrier_answers, 3);
  w1->Close();
  job.Run(seconds(10));
  ExpectGoodEnd();
}

TEST_F(EndedAfterLeaving, TheLastOfThemEndsTheJob) {
  w0->Kill();
  w1->Kill();
  job.Run(seconds(40));
  ExpectGoodEnd();
}

TEST_F(StockJob, AProcessThatEndsBeforeItsAttachedWorkerLeftIsLost) {
  NativeNode* const a1 = Attach(1);
  w1->Kill();
  a1->Kill();
  job.Run(seconds(40));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 1"));
}

TEST(Attach, BeforeTheRendezvousWaitsForIt) {
  Job job(9);
  job.StartCoordinator();
  NativeNode* const attached = job.AddAttached(0);
  attached->Start();
  job.Run(seconds(20));
  EXPECT_FALSE(attached->ready());
  EXPECT_TRUE(job.Logged("the scheduler node is waiting for 2 of 2 workers, 1 of 1 server"));
  for (int i = 0; i < 2; ++i) job.AddStock(Role::kWorker)->Start();
  job.AddNative(Role::kServer)->Start();
  job.Run(seconds(3));
  EXPECT_TRUE(attached->ready());
}

TEST(Attach, BesideANativeWorkerOrStockServersIsRefused) {
  Job of_native_worker(9);
  of_native_worker.options.num_workers = 1;
  of_native_worker.AddNative(Role::kWorker);
  of_native_worker.AddNative(Role::kServer);
  of_native_worker.StartAll();
  of_native_worker.Run(seconds(1));
  NativeNode* const beside_native = of_native_worker.AddAttached(0);
  beside_native->Start();
  of_native_worker.Run(seconds(3));
  EXPECT_THAT(beside_native->refused.value().message(), HasSubstr("is a native worker itself"));

  Job of_stock_server(9);
  of_stock_server.options.num_workers = 1;
  of_stock_server.AddStock(Role::kWorker);
  of_stock_server.AddStock(Role::kServer);
  of_stock_server.StartAll();
  of_stock_server.Run(seconds(1));
  NativeNode* const at_stock_server = of_stock_server.AddAttached(0);
  at_stock_server->Start();
  of_stock_server.Run(seconds(3));
  EXPECT_THAT(at_stock_server->refused.value().message(), HasSubstr("is a stock server"));
  EXPECT_EQ(at_stock_server->refused->code(), bs::StatusCode::kNotFound);
}

// -- stock nodes that cannot be taken: they are ended, as the protocol has no word for it ---------

// A worker whose process may take a stock store instead.
NativeNode* AddYielding(Job* job) {
  MembershipOptions own = job->options;
  own.role = Role::kWorker;
  own.node_host = "10.0.0.3";
  own.node_port = job->NextPort();
  own.yields = true;
  return job->AddNative(own);
}

TEST(Yields, AWorkerLeavesItsPlaceToAStockStoreWhereAServerIsStock) {
  for (const bool server_first : {true, false}) {
    Job job(9);
    job.options.num_workers = 1;
    job.StartCoordinator();
    StockNode* const server = job.AddStock(Role::kServer, "10.0.0.7");
    NativeNode* const native = AddYielding(&job);
    if (server_first) server->Start();
    job.Run(seconds(2));
    native->Start();
    job.Run(seconds(2));
    EXPECT_EQ(native->refused.has_value(), server_first);
    if (!server_first) server->Start();
    job.Run(seconds(2));
    ASSERT_TRUE(native->refused);
    EXPECT_EQ(native->refused->code(), bs::StatusCode::kNotFound);
    EXPECT_THAT(native->refused->message(), HasSubstr("is MXNet's own: it needs a dist store"));
    StockNode* const worker = job.AddStock(Role::kWorker);
    worker->Start();
    job.Run(seconds(2));
    EXPECT_EQ(worker->barrier_answers, 1) << "it has the place";
    EXPECT_FALSE(job.finished);
  }
}

TEST(Yields, AWorkerStaysWhereTheServersAreOurs) {
  Job job(9);
  job.options.num_workers = 1;
  NativeNode* const native = AddYielding(&job);
  job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(2));
  EXPECT_TRUE(native->ready());
}

TEST(StockRefused, ANativeWorkerAndAStockServerAreNoJob) {
  Job job(9);
  job.options.num_servers = 2;
  NativeNode* const worker = job.AddNative(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  StockNode* const stock_worker = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const stock_server = job.AddStock(Role::kServer, "10.0.0.8");
  job.StartAll();
  job.Run(seconds(5));
  const std::string why =
      "server 10.0.0.8:4714 is MXNet's own, and worker 10.0.0.1:4711 is a native worker: start our "
      "servers (bslaunch), or wrap a dist store in the workers (BYTESCHEDULER_BACKEND=kvstore)";
  for (NativeNode* const node : {worker, server}) {
    EXPECT_EQ(node->refused.value().message(), why);
  }
  EXPECT_EQ(job.finished.value().message(), why);
  for (StockNode* const node : {stock_worker, stock_server}) {
    EXPECT_THAT(node->words, ElementsAre("bytescheduler: " + why));
    EXPECT_THAT(node->data, ElementsAre("1: "));
    EXPECT_TRUE(node->list.empty());
  }
}

TEST(StockRefused, ANativeWorkerAndAStockOneAreNoJob) {
  Job job(9);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  StockNode* const stock = job.AddStock(Role::kWorker, "10.0.0.9");
  job.StartAll();
  job.Run(seconds(5));
  const std::string why =
      "worker 10.0.0.9:4713 is MXNet's own, and worker 10.0.0.1:4711 is a native worker: make the "
      "stores of all workers alike, each a dist store of MXNet's, wrapped in all or in none, or "
      "none of them";
  for (NativeNode* const node : {worker, server}) {
    EXPECT_EQ(node->refused.value().message(), why);
  }
  EXPECT_EQ(job.finished.value().message(), why);
  EXPECT_THAT(stock->data, ElementsAre("1: "));
  EXPECT_TRUE(stock->list.empty());
}

TEST_F(StockJob, AStockWorkerWithoutAnAttachedWorkerIsWarnedOf) {
  const std::string said =
      "worker 1 (10.0.0.8:4712) uses MXNet's own store: not scheduled; add kvs = "
      "ScheduledKVS(kvs) (from bytescheduler.mxnet import ScheduledKVS); if it has "
      "BYTESCHEDULER_BACKEND=kvstore, which schedules over that store, unset that instead; others "
      "have wrapped theirs";
  Attach(0);
  job.Run(job.options.timeout - seconds(3));
  EXPECT_FALSE(job.Logged(said));
  job.Run(seconds(3));
  EXPECT_EQ(job.CountLogged(said), 1);
  EXPECT_FALSE(job.Logged("worker 0 (10.0.0.9:4711) uses"));
  job.Run(3 * job.options.timeout);
  EXPECT_EQ(job.CountLogged(said), 1);
  EXPECT_FALSE(job.finished);
}

TEST_F(StockJob, AStockWorkerThatWrapsNothingIsNamedOnceAtTheLatestWhenItEnds) {
  EndStock();
  const std::string said = " uses MXNet's own store: not scheduled; add kvs = ScheduledKVS(kvs)";
  EXPECT_EQ(job.CountLogged("worker 0 (10.0.0.9:4711)" + said), 1);
  EXPECT_EQ(job.CountLogged("worker 1 (10.0.0.8:4712)" + said), 1);
  EXPECT_FALSE(job.Logged("others have wrapped theirs"));
  job.Run(2 * job.options.timeout);
  EXPECT_EQ(job.CountLogged(said), 2);
}

TEST_F(StockJob, WorkersThatWaitForEachOtherAreEndedWithTheReason) {
  w0->Barrier(kWorkerGroup);
  w1->Barrier(kEveryone);
  job.Run(job.options.report_interval - seconds(2));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(),
              AllOf(HasSubstr("worker 0 waits at a barrier of"), HasSubstr("worker 1, which waits"),
                    HasSubstr("the same calls in the same order")));
}

TEST_F(StockJob, AWorkerThatIsOnlyLateIsWaitedFor) {
  w0->Barrier(kWorkerGroup);
  job.Run(10 * job.options.report_interval);
  EXPECT_FALSE(job.finished);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 2);
}

TEST_F(StockJob, ASecondStoreOfAProcessEndsItWithTheRemedy) {
  const NativeNode* const attached = Attach(0);
  EXPECT_TRUE(attached->ready());
  Meta again;
  again.is_control = true;
  again.control.command = Command::kAddNode;
  again.control.nodes = {{Role::kWorker, kEmpty, "10.0.0.9", 4711, false, 1}};
  w0->Send(kSchedulerId, again, "");
  job.Run(seconds(10));
  const std::string said = "makes a second dist store of MXNet's, which waits for ever: import";
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("worker 0 (10.0.0.9:4711) " + said));
  ASSERT_FALSE(w0->words.empty());
  EXPECT_THAT(w0->words.front(), HasSubstr(said));
  EXPECT_THAT(s0->failures.front().message(), HasSubstr(said));
}

TEST_F(StockJob, ANodeThatComesTooLateIsEndedAndOtherNodesNoticeNothing) {
  StockNode* const worker = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const server = job.AddStock(Role::kServer, "10.0.0.7");
  worker->Start();
  server->Start();
  job.Run(seconds(5));
  EXPECT_THAT(worker->data, ElementsAre("1: "));
  EXPECT_THAT(server->data, ElementsAre("1: "));
  EXPECT_TRUE(job.Logged("came too late: the job has all its nodes already"));
  for (StockNode* const node : {w0, w1}) EXPECT_TRUE(node->data.empty());
  EndStock();
}

TEST_F(StockJob, ARegistrationOfTheAddressOfANodeOfTheJobHarmsNoNode) {
  StockNode* const liar = job.AddStock(Role::kWorker, "10.0.0.66");
  Meta meta;
  meta.is_control = true;
  meta.control.command = Command::kAddNode;
  for (const Node& node : w0->list) {
    if (node.id == w0->id) meta.control.nodes = {node};
  }
  liar->Start();
  job.Run(seconds(5));
  liar->Send(kSchedulerId, meta);
  job.Run(seconds(5));
  EXPECT_EQ(job.CountLogged("came too late: the job has all its nodes already"), 2);
  EXPECT_TRUE(w0->data.empty());
  EndStock();
}

TEST(StockRefused, ANodeThatWaitedInVainForAWorkerIsEnded) {
  Job job(9);
  StockNode* const worker = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const server = job.AddStock(Role::kServer, "10.0.0.8");
  job.StartAll();
  job.Run(job.options.timeout + seconds(5));
  EXPECT_THAT(job.finished.value().message(), HasSubstr("still missing 1 of 2 workers"));
  EXPECT_THAT(worker->data, ElementsAre("1: "));
  EXPECT_THAT(server->data, ElementsAre("1: "));
}

TEST(StockRefused, AStockServerOfAJobThatFailsIsEnded) {
  Job job(9);
  StockNode* const dies = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const worker = job.AddStock(Role::kWorker, "10.0.0.8");
  StockNode* const server = job.AddStock(Role::kServer);
  job.StartAll();
  job.Run(seconds(1));
  dies->Kill();
  job.Run(seconds(5));
  EXPECT_THAT(job.finished.value().message(), HasSubstr("lost worker 0"));
  EXPECT_THAT(worker->data, ElementsAre("1: "));
  EXPECT_THAT(server->data, ElementsAre("1: "));
}

TEST(StockNodes, AloneWithOurCoordinatorStartAndEnd) {
  Job job(11);
  job.AddStock(Role::kWorker);
  job.AddStock(Role::kWorker);
  job.AddStock(Role::kServer);
  job.StartAll();
  job.Run(seconds(1));
  for (const auto& node : job.stocks) node->Barrier(kEveryone);
  job.Run(seconds(1));
  for (const auto& node : job.stocks) EXPECT_EQ(node->barrier_answers, 2);
  ASSERT_TRUE(job.finished);
  EXPECT_TRUE(job.finished->ok());
}

TEST(StockNodes, HeartbeatIsEchoedWithTheSchedulersEntry) {
  Job job(11);
  job.options.num_workers = 1;
  StockNode* const worker = job.AddStock(Role::kWorker);
  job.AddStock(Role::kServer);
  job.StartAll();
  Meta beat;
  beat.is_control = true;
  beat.control.command = Command::kHeartbeat;
  beat.control.nodes = {{Role::kWorker, 9, "10.0.0.9", 4711, false, 0}};
  job.Run(seconds(1));
  worker->Send(kSchedulerId, beat);
  job.Run(seconds(1));
  ASSERT_EQ(worker->heartbeat_answers.size(), 1U);
  EXPECT_EQ(worker->heartbeat_answers.at(0).id, kSchedulerId);
  EXPECT_EQ(worker->heartbeat_answers.at(0).port, 9091);
}

}  // namespace
}  // namespace ps::test
