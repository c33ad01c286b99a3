// Membership when a worker is lost and another takes its place, and when many get no place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "membership/violation_limiter.h"
#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Rejoin : public FourNodes {
 protected:
  Rejoin() : FourNodes(seconds(60)) {}
  // Worker 1 was at port 4712; 0: another.
  NativeNode* Add(int32_t port = 0) {
    NativeNode* const node = job.AddNative(Role::kWorker, "10.0.0.8", port);
    node->Start();
    return node;
  }
  // Registers like a worker of that port that has just started.
  void Register(Transport* transport, int32_t port) {
    transport->Connect(kSchedulerId, job.options.root, kEmpty);
    Message message;
    message.peer = kSchedulerId;
    message.meta.is_control = true;
    message.meta.control.command = Command::kAddNode;
    message.meta.control.nodes = {{Role::kWorker, kEmpty, "10.0.0.8", port, false, 0}};
    message.meta.extension.version = kExtensionVersion;
    message.meta.extension.op = Op::kRegister;
    message.meta.extension.sequence = 1;
    transport->Send(std::move(message));
  }
  void ExpectNobodyFailed() {
    for (NativeNode* const node : {w0, s0, s1}) EXPECT_TRUE(node->failures.empty());
    EXPECT_FALSE(job.finished);
  }
};

TEST_F(Rejoin, APlaceIsTakenAgainAndAgain) {
  NativeNode* lost = w1;
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    lost->Kill();
    job.Run(seconds(3));
    NativeNode* const next = Add();
    job.Run(seconds(2));
    ASSERT_TRUE(next->ready());
    EXPECT_EQ(next->view->own_id, WorkerId(1));
    EXPECT_EQ(next->view->incarnation, incarnation);
    next->Send(ServerId(0), "again");
    s1->Send(WorkerId(1), "welcome");
    job.Run(seconds(1));
    EXPECT_THAT(next->data, ElementsAre("10: welcome"));
    lost = next;
  }
  EXPECT_THAT(s0->workers_vacant, ElementsAre("native 11", "native 11", "native 11"));
  EXPECT_THAT(s0->data, ElementsAre("11: again", "11: again", "11: again"));
  // The scheduler node or a server notices first.
  EXPECT_TRUE(job.Logged("lost worker 1 (10.0.0.8:4712): connection closed"));
  EXPECT_TRUE(
      job.Logged("; its place is free for 60 s (BYTESCHEDULER_REJOIN_TIMEOUT): start it again"));
  ExpectNobodyFailed();
}

// What is decided about hosts at the rendezvous holds for whoever comes later.
TEST_F(Rejoin, TheListNamesTheFirstHostOfAPlace) {
  NativeNode* lost = w1;
  for (const char* host : {"10.0.0.9", "10.0.0.7"}) {
    lost->Kill();
    job.Run(seconds(3));
    NativeNode* const next = job.AddNative(Role::kWorker, host, 0);
    next->Start();
    job.Run(seconds(2));
    ASSERT_TRUE(next->ready());
    for (const Node& node : next->view->nodes) {
      EXPECT_EQ(node.first_hostname, node.id == WorkerId(1) ? "10.0.0.8" : "");
    }
    lost = next;
  }
}

TEST_F(Rejoin, AWorkerThatComesBeforeTheLossIsNoticedWaitsForThePlace) {
  w1->Kill();
  job.Run(milliseconds(300));
  NativeNode* const next = Add();
  job.Run(seconds(4));
  EXPECT_TRUE(next->ready());
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AWorkerRestartedAtOnceAtItsAddressHasItsPlaceSoon) {
  NativeNode* lost = w1;
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    lost->Kill();
    job.Run(milliseconds(300));
    NativeNode* const next = Add(4712);
    job.Run(seconds(3));
    ASSERT_TRUE(next->ready());
    EXPECT_EQ(next->view->incarnation, incarnation);
    lost = next;
  }
  ExpectNobodyFailed();
}

// Another connection to the scheduler node under the id of worker 1.
class AsWorker1 {
 public:
  explicit AsWorker1(Job* job)
      : executor_(&job->clock), transport_(job->network.MakeTransport(&executor_)) {
    transport_->Start({[this](const Message&) { ++told; }, {}, {}, {}});
    transport_->Connect(kSchedulerId, job->options.root, WorkerId(1));
  }
  Transport* operator->() const { return transport_.get(); }

  int told = 0;

 private:
  bs::sim::SimExecutor executor_;
  std::unique_ptr<Transport> transport_;
};

Message HeartbeatOfWorker1() {
  Message beat;
  beat.peer = kSchedulerId;
  beat.meta.is_control = true;
  beat.meta.control.command = Command::kHeartbeat;
  beat.meta.control.nodes = {{Role::kWorker, WorkerId(1), "10.0.0.8", 4712, false, 0}};
  beat.meta.extension.version = kExtensionVersion;
  return beat;
}

// Its connections are two: what it had said on the one may be read after the other has broken.
TEST_F(Rejoin, AHeartbeatThatIsReadAfterTheDeathHidesNoRestart) {
  w1->Kill();
  const AsWorker1 late(&job);
  job.Run(milliseconds(100));
  late->Send(HeartbeatOfWorker1());
  job.Run(milliseconds(100));
  NativeNode* const next = Add(4712);
  job.Run(seconds(5));
  EXPECT_TRUE(next->ready());
  ExpectNobodyFailed();
}

// One host may be given the name of another that is cut off and still sends.
TEST_F(Rejoin, MessagesOfTheEarlierHolderDoNotEndTheWorkerAtItsAddress) {
  w1->Kill();
  job.Run(seconds(3));
  NativeNode* const next = Add(4712);
  job.Run(seconds(1));
  ASSERT_TRUE(next->ready());
  const AsWorker1 earlier(&job);
  earlier->Send(HeartbeatOfWorker1());
  job.Run(seconds(3));
  EXPECT_TRUE(next->failures.empty());
  ExpectNobodyFailed();
}

TEST_F(Rejoin, MessagesOfTheEarlierHolderDoNotCountAsTheNextHolders) {
  w1->Kill();
  job.Run(seconds(3));
  NativeNode* const next = Add();
  job.Run(seconds(2));
  ASSERT_TRUE(next->ready());
  const AsWorker1 earlier(&job);
  earlier->Bind({"10.0.0.5", 4711},
                [](const bs::Result<int32_t>& port) { EXPECT_TRUE(port.ok()); });
  earlier->Connect(ServerId(0), {"10.0.0.7", 4713}, WorkerId(1));
  Meta control;
  control.is_control = true;
  control.control.command = Command::kBarrier;  // no request, but as members get it
  control.extension.version = kExtensionVersion;
  Meta data;
  data.extension = {.version = kExtensionVersion, .op = Op::kPull, .sequence = 1};
  const auto say = [&](int32_t to, const Meta& meta) {
    Message message;
    message.peer = to;
    message.meta = meta;
    earlier->Send(std::move(message));
  };
  for (uint32_t i = 0; i < 2 * ViolationLimiter::kMost; ++i) {
    say(kSchedulerId, control);
    say(ServerId(0), data);
  }
  Meta beat = control;
  beat.control.command = Command::kHeartbeat;
  beat.control.nodes = {{Role::kWorker, WorkerId(1), "10.0.0.5", 4711, false, 0}};
  say(kSchedulerId, beat);
  job.Run(seconds(2));
  EXPECT_EQ(earlier.told, 1) << "the scheduler node has read all of it";
  EXPECT_TRUE(
      job.Logged("dropped a message from worker 1: it is from an earlier worker in this place"));
  EXPECT_TRUE(next->failures.empty());
  ExpectNobodyFailed();
}

TEST_F(Rejoin, APlaceThatNoWorkerTakesEndsTheJobAndNamesTheLostWorker) {
  w1->Kill();
  job.Run(seconds(59));
  ExpectNobodyFailed();
  job.Run(seconds(5));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(),
              AllOf(HasSubstr("lost worker 1 (10.0.0.8:4712): connection closed"),
                    HasSubstr("; no worker took its place in 60 s")));
  EXPECT_EQ(w0->failures.size(), 1U);
}

TEST_F(Rejoin, AWorkerThatComesThoughNoWorkerIsLostIsToldLater) {
  NativeNode* const next = Add();
  job.Run(seconds(20));
  EXPECT_FALSE(next->refused);
  job.Run(seconds(20));
  EXPECT_THAT(next->refused.value().message(), HasSubstr("came too late"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, ALiveWorkerThatWasTakenForLostIsToldAndItsMessagesDoNotCount) {
  w1->Send(ServerId(0), "in time");
  job.Run(milliseconds(100));
  job.network.Part(s0->transport(), w1->transport());  // w1 still reaches all others
  for (int i = 0; i < 5000 && s0->workers_vacant.empty(); ++i) job.Run(milliseconds(1));
  EXPECT_THAT(s0->workers_vacant, ElementsAre("native 11"));
  ASSERT_TRUE(w1->failures.empty());  // it does not know yet
  w1->Send(ServerId(0), "late");
  NativeNode* const next = Add();
  for (int i = 0; i < 5000 && !next->ready(); ++i) job.Run(milliseconds(1));
  ASSERT_TRUE(next->ready());
  next->Send(ServerId(0), "mine");
  job.Run(milliseconds(20));
  ASSERT_TRUE(w1->failures.empty());  // still not
  w1->Send(ServerId(0), "later");
  job.Run(seconds(3));
  EXPECT_THAT(s0->data, ElementsAre("11: in time", "11: mine"));
  ASSERT_EQ(w1->failures.size(), 1U);
  EXPECT_THAT(w1->failures.at(0).message(),
              HasSubstr("worker 1 (10.0.0.8:4712) was taken for lost, and its place is that of "
                        "10.0.0.8:4715"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AWorkerThatFallsSilentIsReplaced) {
  job.network.Mute(w1->transport());
  job.Run(seconds(33));
  EXPECT_TRUE(
      job.Logged("lost worker 1 (10.0.0.8:4712): silent for 30 s "
                 "(BYTESCHEDULER_HEARTBEAT_TIMEOUT); its place is free"));
  NativeNode* const next = Add();
  job.Run(seconds(2));
  EXPECT_TRUE(next->ready());
  ExpectNobodyFailed();
}

TEST_F(Rejoin, BarriersThatAreOverDoNotHoldTheNewWorker) {
  w0->Barrier(kWorkerGroup);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  w1->Kill();
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(3));
  NativeNode* const next = Add();
  job.Run(seconds(2));
  next->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(next->barriers.size(), 1U);
  EXPECT_EQ(w0->barriers.size(), 1U);
  next->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(next->barriers.size(), 2U);
  ASSERT_EQ(w0->barriers.size(), 2U);
  EXPECT_TRUE(w0->barriers[1].ok());
}

TEST_F(Rejoin, AWorkerThatDoesNotReadIsLostWhicheverNodeNotices) {
  NativeNode* lost = w1;
  for (const bool server_notices : {true, false}) {
    if (server_notices) {
      job.network.Overflow(s0->transport(), WorkerId(1));
    } else {
      job.network.Overflow(job.coordinator_transport(), WorkerId(1));
    }
    job.Run(seconds(6));
    lost = Add();
    job.Run(seconds(2));
    ASSERT_TRUE(lost->ready());
  }
  EXPECT_TRUE(job.Logged("it does not read (noticed by server 0); its place is free"));
  EXPECT_TRUE(job.Logged("): it does not read; its place is free"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AWorkerWithTooManyViolationsIsReplacedAndOtherNodesGoOn) {
  for (uint32_t i = 0; i <= ViolationLimiter::kMost; ++i) {
    Message message;
    message.peer = ServerId(0);
    message.meta.is_control = true;
    message.meta.control.command = Command::kAddNode;
    w1->transport()->Send(std::move(message));
  }
  job.Run(seconds(5));
  EXPECT_TRUE(job.Logged("lost worker 1 (10.0.0.8:4712): it sends what makes no sense: control"));
  EXPECT_EQ(w1->failures.size(), 1U);
  NativeNode* const next = Add();
  job.Run(seconds(5));
  ASSERT_TRUE(next->ready());
  next->Send(ServerId(0), "again");
  job.Run(seconds(1));
  EXPECT_THAT(s0->data, ElementsAre("11: again"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AServerIsNotReplaced) {
  s1->Kill();
  job.Run(seconds(5));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost server 1"));
  EXPECT_THAT(job.finished->message(), HasSubstr("no process can take a server's place"));
}

TEST_F(Rejoin, AStrangerWithOtherSettingsIsRefusedAndTheJobGoesOn) {
  MembershipOptions other = job.options;
  other.role = Role::kWorker;
  other.node_host = "10.0.0.66";
  other.settings = "DMLC_NUM_WORKER=7\n";
  NativeNode* const stranger = job.AddNative(other);
  stranger->Start();
  job.Run(seconds(5));
  EXPECT_THAT(stranger->refused.value().message(), HasSubstr("settings differ"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AWorkerThatWaitsForAPlaceHearsOfTheEnd) {
  NativeNode* const next = Add();
  job.Run(milliseconds(200));
  job.Abort(bs::Status::Unavailable("stopped by hand"));
  job.Run(seconds(5));
  EXPECT_TRUE(job.finished);
  ASSERT_TRUE(next->refused);
  EXPECT_THAT(next->refused->message(), HasSubstr("stopped by hand"));
}

TEST_F(Rejoin, AWorkerRestartedWhileItWaitsForAPlaceHasItsOwnTime) {
  NativeNode* const first = Add(4799);
  job.Run(seconds(20));
  first->Kill();
  NativeNode* const second = Add(4799);
  job.Run(seconds(20));
  EXPECT_FALSE(second->refused);
  job.Run(seconds(20));
  EXPECT_TRUE(second->refused);
  ExpectNobodyFailed();
}

// Numbers of registrations begin with the time since the host's start.
TEST_F(Rejoin, AHostThatStartedAnewTakesThePlaceWithTheSamePort) {
  w1->Kill();
  job.Run(seconds(3));
  NativeNode* const second = Add();  // its number is large
  job.Run(seconds(2));
  second->Kill();
  job.Run(seconds(3));
  const int32_t port = job.NextPort() - 1;
  bs::sim::SimExecutor executor(&job.clock);
  const std::unique_ptr<Transport> transport = job.network.MakeTransport(&executor);
  std::vector<uint64_t> lists;
  transport->Start({[&lists](const Message& message) {
                      if (message.meta.control.command != Command::kAddNode) return;
                      lists.push_back(message.meta.extension.sequence);
                    },
                    {},
                    {},
                    {}});
  transport->Bind({"10.0.0.8", port}, [](const bs::Result<int32_t>&) {});
  Register(transport.get(), port);
  job.Run(seconds(2));
  EXPECT_THAT(lists, ElementsAre(1));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AWorkerThatIsCutOffFromOneServerIsReplacedWhoeverOfThemNotices) {
  NativeNode* lost = w1;
  for (const bool server_notices : {true, false}) {
    Transport* const worker = lost->transport();
    server_notices ? job.network.Part(s0->transport(), worker)
                   : job.network.Part(worker, s0->transport());
    job.Run(seconds(6));
    ASSERT_EQ(lost->failures.size(), 1U);
    EXPECT_THAT(lost->failures.at(0).message(), HasSubstr("was taken for lost"));
    lost = Add();
    job.Run(seconds(2));
    ASSERT_TRUE(lost->ready());
  }
  EXPECT_TRUE(job.Logged("connection closed (noticed by server 0); its place is free"));
  EXPECT_TRUE(
      job.Logged("connection closed (by server 0 (10.0.0.7:4713), which is there); its place"));
  ExpectNobodyFailed();
}

TEST_F(Rejoin, AServerThatAWorkerHasLostAndNoNodeHearsIsLost) {
  job.network.Mute(s0->transport());
  job.network.Part(w1->transport(), s0->transport());
  job.Run(seconds(25));
  ExpectNobodyFailed();
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost server 0"));
  EXPECT_FALSE(job.Logged("its place is free"));
}

TEST_F(Rejoin, ANewHolderThatIsGoneAtOnceKeepsThePlaceForFiveSecondsOnly) {
  w1->Kill();
  job.Run(seconds(3));
  bs::sim::SimExecutor executor(&job.clock);
  const std::unique_ptr<Transport> transport = job.network.MakeTransport(&executor);
  transport->Start({[](const Message&) {}, {}, {}, {}});
  Register(transport.get(), job.NextPort());  // no process listens there
  job.Run(seconds(1));
  EXPECT_EQ(job.CountLogged("takes the place"), 1);
  NativeNode* const next = Add();
  job.Run(seconds(3));
  EXPECT_FALSE(next->ready());
  job.Run(seconds(3));
  EXPECT_TRUE(job.Logged("address that the others reach; its place is free for 60 s"));
  ASSERT_TRUE(next->ready());
  EXPECT_EQ(next->view->incarnation, 2U);
  ExpectNobodyFailed();
}

TEST(Goodbye, IsHeardByAServerThatTookTheLeavingOneForLost) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    // Where the news is lost at first, it comes when the broken connection has been given up.
    Job job(seed, {.loss = 0.3});
    job.options.rejoin_timeout = seconds(60);
    job.options.retry_interval = seconds(3);
    NativeNode* const w0 = job.AddNative(Role::kWorker, "10.0.0.9");
    NativeNode* const w1 = job.AddNative(Role::kWorker, "10.0.0.8");
    NativeNode* const server = job.AddNative(Role::kServer, "10.0.0.7");
    job.StartAll();
    job.Run(seconds(60));
    ASSERT_TRUE(w0->ready() && w1->ready() && server->ready()) << seed;
    w1->Leave();
    job.Run(milliseconds(2));
    w1->Kill();
    job.Run(seconds(30));
    if (!job.Logged("left")) continue;  // its goodbye was lost, and then it was
    EXPECT_THAT(server->workers_left, ElementsAre(1)) << seed;
    EXPECT_TRUE(server->failures.empty()) << seed;
    EXPECT_FALSE(job.finished) << seed;
  }
}

// Two stock workers and a native server.
class StockRejoin : public ::testing::Test {
 protected:
  StockRejoin() {
    job.options.rejoin_timeout = seconds(60);
    w0 = job.AddStock(Role::kWorker, "10.0.0.9");
    w1 = job.AddStock(Role::kWorker, "10.0.0.8");
    server = job.AddNative(Role::kServer, "10.0.0.7");
    job.StartAll();
    job.Run(seconds(1));
    EXPECT_EQ(w0->barrier_answers, 1);
  }
  Job job{7};
  StockNode* w0;
  StockNode* w1;
  NativeNode* server;
};

TEST_F(StockRejoin, APlaceIsTakenAgainAndAgain) {
  StockNode* lost = w1;
  for (int i = 0; i < 3; ++i) {
    lost->Kill();
    StockNode* const next = job.AddStock(Role::kWorker, "10.0.0.8");
    next->Start(milliseconds(i * 700));
    job.Run(seconds(4));
    EXPECT_EQ(next->id, WorkerId(1));
    EXPECT_TRUE(next->is_recovery);
    Meta meta;
    meta.request = true;
    next->Send(ServerId(0), meta, "again");
    job.Run(seconds(1));
    lost = next;
  }
  EXPECT_EQ(server->data.size(), 3U);
  EXPECT_THAT(server->workers_vacant, ElementsAre("stock 11", "stock 11", "stock 11"));
  EXPECT_FALSE(w0->is_recovery);
  EXPECT_TRUE(w0->data.empty());
  EXPECT_TRUE(server->failures.empty());
}

TEST_F(StockRejoin, ALostWorkerThatAsksForMoreIsEnded) {
  job.network.Overflow(server->transport(), WorkerId(1));
  job.Run(seconds(3));
  EXPECT_THAT(server->workers_vacant, ElementsAre("stock 11"));
  EXPECT_TRUE(job.network.Knows(server->transport(), WorkerId(1)));  // also what is large is taken
  Meta meta;
  meta.request = true;
  for (int i = 0; i < 3; ++i) w1->Send(ServerId(0), meta, "more");
  job.Run(seconds(1));
  EXPECT_THAT(w1->data, ElementsAre("8: "));  // the end
  EXPECT_TRUE(server->data.empty());
  EXPECT_EQ(job.CountLogged("worker 1 (10.0.0.8:4712) was lost ("), 1);
  EXPECT_TRUE(job.Logged("and asks for more: its process is told to end"));
  // It may have missed that.
  job.Run(seconds(4));
  EXPECT_THAT(w1->data, ElementsAre("8: ", "8: ", "8: "));
  EXPECT_EQ(job.CountLogged("told to end"), 1);
  // The next holder of its place is served.
  w1->Kill();
  StockNode* const next = job.AddStock(Role::kWorker, "10.0.0.8");
  next->Start();
  job.Run(seconds(4));
  EXPECT_EQ(next->id, WorkerId(1));
  next->Send(ServerId(0), meta, "again");
  job.Run(seconds(1));
  EXPECT_EQ(server->data.size(), 1U);
  job.Run(seconds(5));
  EXPECT_TRUE(next->data.empty());
}

// A job without replacement; the scheduler node has its own connection to the worker.
TEST(StockOverflow, EndsTheJobAndEveryStockWorker) {
  Job job(7);
  StockNode* const w0 = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const w1 = job.AddStock(Role::kWorker, "10.0.0.8");
  NativeNode* const server = job.AddNative(Role::kServer, "10.0.0.7");
  job.StartAll();
  job.Run(seconds(1));
  job.network.Overflow(server->transport(), WorkerId(1));
  job.Run(seconds(6));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 1 (10.0.0.8:"));
  EXPECT_THAT(job.finished->message(), HasSubstr("it does not read"));
  for (const StockNode* const worker : {w0, w1}) EXPECT_THAT(worker->data, ElementsAre("1: "));
}

TEST_F(StockRejoin, WhileAnotherWaitsForItAtABarrierItIsNotReplaced) {
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  w1->Kill();
  job.Run(seconds(5));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 1"));
}

TEST_F(StockRejoin, AnAttachedWorkerIsReplacedToo) {
  NativeNode* const first = job.AddAttached(1);
  first->Start();
  job.Run(seconds(2));
  EXPECT_TRUE(first->ready());
  first->Kill();
  w1->Kill();
  job.Run(seconds(3));
  StockNode* const next = job.AddStock(Role::kWorker, "10.0.0.8");
  next->Start();
  job.Run(seconds(2));
  NativeNode* const again = job.AddAttached(1);
  again->Start();
  job.Run(seconds(2));
  ASSERT_TRUE(again->ready());
  EXPECT_EQ(again->view->incarnation, 1U);
  again->Send(ServerId(0), "again");
  job.Run(seconds(1));
  EXPECT_EQ(server->data.size(), 1U);
  // Its process closes its store and opens another one: the incarnation goes on.
  again->Leave();
  job.Run(seconds(2));
  NativeNode* const other = job.AddAttached(1);
  other->Start();
  job.Run(seconds(2));
  ASSERT_TRUE(other->ready());
  EXPECT_EQ(other->view->incarnation, 1U);
  other->Send(ServerId(0), "and again");
  job.Run(seconds(1));
  EXPECT_EQ(server->data.size(), 2U);
  EXPECT_TRUE(server->failures.empty());
}

TEST_F(StockRejoin, OfTwoThatAttachToAFreePlaceTheFirstHasIt) {
  NativeNode* const lost = job.AddAttached(1);
  lost->Start();
  job.Run(seconds(2));
  lost->Kill();
  job.Run(milliseconds(900));
  job.network.CutOff(server->transport(), milliseconds(800));  // it must know first
  job.Run(milliseconds(200));
  NativeNode* const first = job.AddAttached(1);
  first->Start();
  job.Run(milliseconds(200));
  NativeNode* const second = job.AddAttached(1);
  second->Start();
  job.Run(seconds(6));
  EXPECT_TRUE(first->ready());
  EXPECT_FALSE(second->ready());
  job.Run(seconds(35));
  ASSERT_TRUE(second->refused);
  EXPECT_THAT(second->refused->message(), HasSubstr("is attached there"));
  EXPECT_FALSE(job.finished);
}

TEST_F(StockRejoin, WhileAnotherWaitsForTheEndItIsNotReplaced) {
  w0->Barrier(kWorkerGroup);
  w1->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  w0->Barrier(kEveryone);
  job.Run(seconds(1));
  w1->Kill();
  job.Run(seconds(5));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 1"));
}

TEST_F(StockRejoin, AfterItABarrierThatAWorkerMissesEndsTheJob) {
  w1->Kill();
  StockNode* const next = job.AddStock(Role::kWorker, "10.0.0.8");
  next->Start();
  job.Run(seconds(4));
  EXPECT_EQ(next->id, WorkerId(1));
  w0->Barrier(kWorkerGroup);
  job.Run(job.options.straggler_timeout - seconds(5));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(15));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(), HasSubstr("worker 0 has waited 180"));
  EXPECT_THAT(job.finished->message(), HasSubstr(" at a barrier for worker 1, in a job in which "));
  EXPECT_THAT(job.finished->message(), HasSubstr("(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
}

TEST_F(StockRejoin, AWorkerThatWaitsForAPlaceIsEndedWithTheJob) {
  StockNode* const first = job.AddStock(Role::kWorker, "10.0.0.8");
  first->Start();
  job.network.Mute(server->transport());  // the place is not free before it knows
  w1->Kill();
  job.Run(seconds(3));
  StockNode* const second = job.AddStock(Role::kWorker, "10.0.0.8");
  second->Start();
  job.Run(seconds(3));
  EXPECT_TRUE(first->data.empty() && second->data.empty());
  job.Abort(bs::Status::Unavailable("stopped by hand"));
  job.Run(seconds(5));
  EXPECT_TRUE(job.finished);
  EXPECT_THAT(first->data, ElementsAre("1: "));
  EXPECT_THAT(second->data, ElementsAre("1: "));
}

TEST_F(StockRejoin, WithAnAttachedWorkerThatIsLostGoesTheStoreOfItsProcess) {
  NativeNode* const stopped = job.AddAttached(1);
  stopped->Start();
  job.Run(seconds(2));
  ASSERT_TRUE(stopped->ready());
  job.network.Mute(stopped->transport());  // its connections last, and so do those of w1
  job.Run(job.options.heartbeat_timeout + seconds(2));
  EXPECT_THAT(server->workers_vacant,
              ::testing::UnorderedElementsAre("native " + std::to_string(AttachedId(1)),
                                              "stock " + std::to_string(WorkerId(1))));
  StockNode* const next = job.AddStock(Role::kWorker, "10.0.0.8");
  next->Start();
  job.Run(seconds(4));
  EXPECT_EQ(next->id, WorkerId(1));
  EXPECT_FALSE(job.finished);
}

TEST_F(StockRejoin, AtTheEndOnlyAnAttachedWorkerThatIsThereTellsItsProcess) {
  NativeNode* const gone = job.AddAttached(1);
  NativeNode* const there = job.AddAttached(0);
  gone->Start();
  there->Start();
  job.Run(seconds(2));
  gone->Leave();
  job.Run(seconds(3));
  EXPECT_FALSE(job.finished);
  job.Abort(bs::Status::Unavailable("stopped by hand"));
  job.Run(milliseconds(500));
  there->Leave();
  job.Run(seconds(5));
  EXPECT_TRUE(job.finished);
  EXPECT_THAT(w1->data, ElementsAre("1: "));
  EXPECT_THAT(w0->data, ElementsAre());
}

// A running job, and so many that come at once.
std::vector<StockNode*> StartTooMany(Job* job, int32_t count) {
  job->options.num_workers = 1;
  job->AddStock(Role::kWorker);
  job->AddNative(Role::kServer);
  job->StartAll();
  job->Run(seconds(1));
  std::vector<StockNode*> late;
  for (int32_t i = 0; i < count; ++i) late.push_back(job->AddStock(Role::kWorker));
  for (StockNode* const node : late) node->Start();
  return late;
}

TEST(Refusals, OfAHundredStockNodesAtOnceEachIsEnded) {
  Job job(7);
  const std::vector<StockNode*> late = StartTooMany(&job, 100);
  const auto ended = [&] {
    return std::count_if(late.begin(), late.end(),
                         [](const StockNode* node) { return !node->data.empty(); });
  };
  job.Run(milliseconds(1500));
  EXPECT_EQ(ended(), 32);
  job.Run(seconds(2));
  EXPECT_EQ(ended(), 64);
  job.Run(seconds(5));
  for (const StockNode* const node : late) EXPECT_THAT(node->data, ElementsAre("1: "));
  EXPECT_FALSE(job.finished);
}

TEST(Refusals, OfAHundredStockNodesEachIsEndedThoughTheJobEnds) {
  Job job(7);
  const std::vector<StockNode*> late = StartTooMany(&job, 100);
  job.Run(milliseconds(500));
  job.Abort(bs::Status::Unavailable("stopped by hand"));
  job.Run(seconds(10));
  for (const StockNode* const node : late) EXPECT_THAT(node->data, ElementsAre("1: "));
  EXPECT_TRUE(job.finished);
}

TEST(Refusals, NodesThatCannotBeToldOfTheEndOfTheJobAreCounted) {
  Job job(7);
  const std::vector<StockNode*> late = StartTooMany(&job, 600);
  job.Run(milliseconds(500));
  job.Abort(bs::Status::Unavailable("stopped by hand"));
  job.Run(seconds(10));
  const auto untold = std::count_if(late.begin(), late.end(),
                                    [](const StockNode* node) { return node->data.empty(); });
  EXPECT_GT(untold, 0);
  EXPECT_GE(600 - untold, 512);
  EXPECT_TRUE(
      job.Logged("not told that the job has ended: " + std::to_string(untold) + " nodes that"));
}

}  // namespace
}  // namespace ps::test
