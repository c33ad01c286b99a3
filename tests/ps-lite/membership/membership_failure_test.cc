// Membership when things go wrong: missing, refused and lost nodes are named, once, to all nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "membership/control_body.h"
#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Missing, CoordinatorNamesThemToTheNodesThatCame) {
  Job job(1);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  StockNode* const too_many = job.AddStock(Role::kServer);  // ignored; it must not disturb
  job.StartCoordinator();
  worker->Start();
  server->Start(milliseconds(10));
  too_many->Start(milliseconds(20));
  job.Run(seconds(30));
  EXPECT_TRUE(job.Logged("waiting for 1 of 2 workers"));
  EXPECT_EQ(job.CountLogged("the scheduler node is waiting for 1 of 2 workers"), 2 * 3)
      << "each node says it every ten seconds";
  EXPECT_FALSE(job.finished);
  job.Run(seconds(35));
  const std::string want =
      "kDeadlineExceeded: rendezvous: after 60 s still missing 1 of 2 workers; registered: worker "
      "10.0.0.1:4711, server 10.0.0.1:4712; refused: server 10.0.0.9:4713: the job has its 1 "
      "server already (nodes of another job need another DMLC_PS_ROOT_PORT)";
  ASSERT_TRUE(job.finished && worker->refused && server->refused);
  EXPECT_EQ(job.finished->ToString(), want);
  EXPECT_EQ(worker->refused->ToString(), want);
  EXPECT_EQ(server->refused->ToString(), want);
  EXPECT_TRUE(worker->failures.empty());
}

TEST(Missing, NodesMayTakeLongerToComeThanToRespond) {
  Job job(1);
  job.options.rendezvous_timeout = seconds(300);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  job.StartCoordinator();
  worker->Start();
  job.Run(seconds(299));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(3));
  ASSERT_TRUE(job.finished && worker->refused);
  EXPECT_THAT(job.finished->message(), HasSubstr("rendezvous: after 300 s still missing"));
}

TEST(Lost, AServerInTheProcessOfAWorkerIsCalledByThatWorker) {
  Job job(1);
  job.options.num_workers = 1;
  job.options.servers_in_workers = true;
  NativeNode* const worker = job.AddNative(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  job.StartCoordinator();
  worker->Start();
  server->Start();
  job.Run(seconds(2));
  server->Kill();
  job.Run(seconds(5));
  ASSERT_TRUE(job.finished);
  EXPECT_THAT(job.finished->message(),
              HasSubstr("lost worker 0 (its server 10.0.0.1:4712): connection closed"));
}

// Two workers and a server; worker 1 has not come yet.
struct Gathering {
  Gathering() {
    job.options.num_workers = 2;
    worker = job.AddNative(Role::kWorker);
    server = job.AddNative(Role::kServer);
    job.StartCoordinator();
    worker->Start();
    server->Start();
    job.Run(seconds(1));
  }
  Job job{1};
  NativeNode* worker;
  NativeNode* server;
};

void ExpectAPlaceTakenAgainAndAgain(Role role, bs::Duration until_next,
                                    const std::string& waiting) {
  Gathering gathering;
  Job& job = gathering.job;
  NativeNode*& node = role == Role::kServer ? gathering.server : gathering.worker;
  for (int64_t deaths = 1; deaths <= 3; ++deaths) {
    node->Kill();
    node = job.AddNative(role);
    node->Start(until_next);
    job.Run(seconds(3));
    EXPECT_EQ(
        job.CountLogged("is gone before all nodes were there (connection closed); another may "
                        "take its place; " +
                        waiting),
        deaths);
  }
  NativeNode* const second = job.AddNative(Role::kWorker);
  second->Start();
  job.Run(seconds(2));
  EXPECT_TRUE(gathering.worker->ready() && second->ready() && gathering.server->ready());
  EXPECT_FALSE(job.finished);
}

TEST(Missing, NodeThatDiesBeforeTheJobBeginsLeavesItsPlaceToTheNextEachTime) {
  // The scheduler node does not know yet.
  ExpectAPlaceTakenAgainAndAgain(Role::kServer, milliseconds(300),
                                 "waiting for 1 of 2 workers, 1 of 1 server");
  // It does; before, the next one would take the place that is free, and the job begin.
  ExpectAPlaceTakenAgainAndAgain(Role::kWorker, seconds(2), "waiting for 2 of 2 workers");
}

TEST(Missing, AJobThatIsCompleteBeforeADeathIsKnownEndsNamingIt) {
  Gathering gathering;
  Job& job = gathering.job;
  gathering.worker->Kill();
  NativeNode* const second = job.AddNative(Role::kWorker);
  second->Start(milliseconds(300));
  job.Run(seconds(60));
  ASSERT_TRUE(job.finished.has_value());
  EXPECT_THAT(job.finished->message(), HasSubstr("lost worker 0 (10.0.0.1:4711): silent for 30 s"));
  ASSERT_TRUE(second->refused.has_value());
  EXPECT_EQ(second->refused->message(), job.finished->message());
}

TEST(Missing, LiveNodeThatWasGivenUpRegistersAgain) {
  Gathering gathering;
  Job& job = gathering.job;
  job.network.CutOff(gathering.worker->transport(), seconds(3));
  job.Run(seconds(2));
  EXPECT_TRUE(job.Logged("another may take its place; waiting for 2 of 2 workers"));
  NativeNode* const second = job.AddNative(Role::kWorker);
  second->Start();
  job.Run(seconds(5));
  EXPECT_TRUE(gathering.worker->ready() && second->ready() && gathering.server->ready());
}

// An attached worker dies after a while, in a job that lacks a worker.
struct DiesEarly {
  explicit DiesEarly(bs::Duration after) {
    job.AddStock(Role::kWorker);
    job.AddNative(Role::kServer);
    NativeNode* const first = job.AddAttached(0);
    job.StartAll();
    job.Run(after);
    first->Kill();
    again = job.AddAttached(0);
  }
  // Its successor is in the job once the other worker is there.
  void ExpectReplaced() {
    job.AddStock(Role::kWorker)->Start();
    job.Run(seconds(6));
    EXPECT_FALSE(again->refused);
    EXPECT_TRUE(again->ready());
  }
  Job job{1};
  NativeNode* again;
};

TEST(Missing, AnAttachedWorkerThatDiesEarlyLeavesItsPlaceToo) {
  DiesEarly early(seconds(6));
  early.job.Run(seconds(3));
  EXPECT_TRUE(early.job.Logged("another may take its place; waiting for 1 of 2 workers"));
  early.again->Start();
  early.ExpectReplaced();
}

TEST(Missing, NodeInThePlaceOfANewcomerThatDiedWaitsForIt) {
  Gathering gathering;
  Job& job = gathering.job;
  NativeNode* const second = job.AddNative(Role::kWorker);
  NativeNode* const third = job.AddNative(Role::kServer);
  gathering.server->Kill();
  job.Run(seconds(2));
  second->Start();
  third->Start(seconds(7));
  job.Run(milliseconds(100));
  second->Kill();  // before the scheduler node has reached it
  NativeNode* const next = job.AddNative(Role::kWorker);
  next->Start(milliseconds(100));
  job.Run(seconds(10));
  EXPECT_TRUE(next->ready() && gathering.worker->ready() && third->ready());
}

TEST(Missing, AnAttachedWorkerWaitsForTheRankOfOneThatIsNotKnownToBeDead) {
  DiesEarly early(seconds(2));
  early.again->Start(milliseconds(300));
  early.job.Run(seconds(4));
  early.ExpectReplaced();
}

TEST(Missing, MemberWithoutASchedulerNodeGivesUp) {
  Job job(1);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  worker->Start();
  job.Run(seconds(4));
  EXPECT_FALSE(job.Logged("waiting for"));
  job.Run(seconds(55));
  EXPECT_FALSE(worker->refused);
  EXPECT_EQ(job.CountLogged("INFO waiting for the scheduler node at 10.0.0.100:9091"), 11);
  job.Run(seconds(2));
  ASSERT_TRUE(worker->refused);
  EXPECT_EQ(worker->refused->ToString(),
            "kDeadlineExceeded: no response from the scheduler node at 10.0.0.100:9091 in 60 s");
}

TEST(Missing, NodeThatRegisteredAtAKilledSchedulerNodeGivesUp) {
  Job job(1);
  job.options.rendezvous_timeout = seconds(300);
  NativeNode* const server = job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(6));
  job.KillCoordinator();
  job.Run(seconds(70));
  EXPECT_FALSE(server->ready());
  ASSERT_TRUE(server->refused);
  EXPECT_EQ(server->refused->ToString(),
            "kDeadlineExceeded: no response from the scheduler node at 10.0.0.100:9091 in 60 s; it "
            "said last: waiting for 2 of 2 workers");
}

TEST(Missing, ASchedulerNodeThatAnswersIsNotCalledSilent) {
  Job job(1);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  job.StartCoordinator();
  worker->Start(milliseconds(2500));
  job.Run(seconds(50));
  EXPECT_TRUE(job.Logged("the scheduler node is waiting for 1 of 2 workers"));
  EXPECT_FALSE(job.Logged("waiting for the scheduler node"));
}

TEST(Missing, ASchedulerNodeThatIsThereButMuteIsSaidToBe) {
  Job job(1);
  NativeNode* const worker = job.AddNative(Role::kWorker);
  job.StartCoordinator();
  worker->Start();
  job.network.Mute(worker->transport());  // it hears nothing of us
  job.Run(seconds(30));
  EXPECT_TRUE(job.Logged("waiting for the scheduler node at 10.0.0.100:9091: it is there but"));
}

TEST(Missing, BusyPortIsAnErrorForBothKinds) {
  Job job(1);
  MembershipOptions own = job.options;
  own.node_host = job.options.root.host;
  own.node_port = job.options.root.port;
  NativeNode* const worker = job.AddNative(own);
  worker->Start();
  job.StartCoordinator(seconds(1));
  job.Run(seconds(2));
  ASSERT_TRUE(job.finished);
  EXPECT_EQ(job.finished->code(), bs::StatusCode::kAlreadyExists);
  NativeNode* const second = job.AddNative(own);
  second->Start();
  job.Run(seconds(1));
  ASSERT_TRUE(second->refused);
  EXPECT_EQ(second->refused->code(), bs::StatusCode::kAlreadyExists);
}

TEST(Refused, WorkerWithOtherSettingsIsNamedAndOtherNodesWaitForTheNext) {
  for (const bool comes : {true, false}) {
    Job job(1);
    job.options.settings = "num_servers=1\nnum_workers=2\n";
    MembershipOptions odd = job.options;
    odd.role = Role::kWorker;
    odd.node_host = "10.0.0.3";
    odd.node_port = 5000;
    odd.settings = "num_servers=1\nnum_workers=3\n";
    job.StartCoordinator();
    NativeNode* const stranger = job.AddNative(odd);
    stranger->Start();
    NativeNode* const worker = job.AddNative(Role::kWorker);
    NativeNode* const server = job.AddNative(Role::kServer);
    worker->Start(seconds(1));
    server->Start(milliseconds(1100));
    job.Run(seconds(6));
    const std::string why =
        "settings differ: worker 10.0.0.3:5000 has num_workers=3 instead of num_workers=2, which "
        "the scheduler node (10.0.0.100:9091) has";
    EXPECT_EQ(stranger->refused.value().ToString(), "kInvalidArgument: " + why);
    EXPECT_TRUE(job.Logged("WARNING refused: " + why));
    EXPECT_TRUE(
        job.Logged("the scheduler node is waiting for 1 of 2 workers; "
                   "refused: " +
                   why));
    EXPECT_FALSE(job.finished || worker->refused || server->refused);
    if (comes) job.AddNative(Role::kWorker)->Start();
    job.Run(seconds(60));
    EXPECT_EQ(job.finished.has_value(), !comes);
    EXPECT_EQ(worker->ready() && server->ready(), comes);
    if (comes) continue;
    for (const NativeNode* node : {worker, server}) {
      EXPECT_THAT(node->refused.value().message(),
                  HasSubstr("still missing 1 of 2 workers; registered: worker 10.0.0.1:4711, "
                            "server 10.0.0.1:4712; refused: " +
                            why));
    }
  }
}

TEST(Refused, OfManyTheLastThreeAreNamedToTheNodesThatWait) {
  Job job(1);
  job.options.settings = "num_workers=2\n";
  job.StartCoordinator();
  MembershipOptions odd = job.options;
  odd.role = Role::kWorker;
  odd.settings = std::string(1000, 'x');
  for (int port = 5000; port < 5005; ++port) {
    odd.node_host = "10.0.0.3";
    odd.node_port = port;
    job.AddNative(odd)->Start(milliseconds(port));
  }
  job.Run(seconds(16));
  std::string want = "waiting for 2 of 2 workers, 1 of 1 server";
  for (const char* port : {"5002", "5003", "5004"}) {
    want += "; refused: settings differ: worker 10.0.0.3:" + std::string(port) + " has " +
            std::string(256, 'x') + "... instead of num_workers=2, which the scheduler node " +
            "(10.0.0.100:9091) has";
  }
  EXPECT_THAT(job.log.back(), testing::EndsWith("INFO " + want));
}

TEST(Refused, OneWorkerTooManyIsToldAndTheOtherWorkersGoOn) {
  Job job(1);
  job.AddNative(Role::kWorker);
  job.AddNative(Role::kWorker);
  NativeNode* const third = job.AddNative(Role::kWorker);
  job.StartCoordinator();
  for (const auto& node : job.natives) node->Start(milliseconds(node.get() == third ? 10 : 0));
  job.Run(seconds(3));
  EXPECT_EQ(third->refused.value().ToString(),
            "kAlreadyExists: worker 10.0.0.1:4713: the job has its 2 workers already "
            "(nodes of another job need another DMLC_PS_ROOT_PORT)");
  job.AddNative(Role::kServer)->Start();
  job.Run(seconds(3));
  EXPECT_TRUE(job.natives.at(0)->ready());
  EXPECT_FALSE(job.finished);
}

TEST(Refused, LatecomerIsTold) {
  Job job(1);
  job.options.num_workers = 1;
  job.AddNative(Role::kWorker);
  job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(2));
  NativeNode* const late = job.AddNative(Role::kServer);
  late->Start();
  job.Run(seconds(2));
  EXPECT_THAT(late->refused.value().message(), HasSubstr("came too late"));
  EXPECT_FALSE(job.finished);
}

TEST(Refused, SecondStoreOfAProcessIsToldThatThereCanBeOne) {
  Job job(1);
  job.options.num_workers = 1;
  job.AddNative(Role::kWorker);
  job.AddNative(Role::kServer);
  job.StartAll();
  job.Run(seconds(2));
  NativeNode* const second = job.AddNative(Role::kWorker);
  second->Start();
  NativeNode* const elsewhere = job.AddNative(Role::kWorker, "10.0.0.2");
  elsewhere->Start();
  job.Run(seconds(2));
  EXPECT_THAT(second->refused.value().message(),
              HasSubstr("came too late: the job has all its nodes already (nodes of "
                        "another job need another DMLC_PS_ROOT_PORT); worker 0 "
                        "(10.0.0.1:4711) of the same host is one of them"));
  EXPECT_THAT(elsewhere->refused.value().message(),
              testing::EndsWith("all its nodes already (nodes of another job need another "
                                "DMLC_PS_ROOT_PORT)"));
}

TEST(Refused, SecondStoreBesideAStockWorkerIsToldThatThereCanBeOne) {
  Job job(1);
  job.options.num_workers = 1;
  job.AddStock(Role::kWorker);
  job.AddNative(Role::kServer);
  NativeNode* const attached = job.AddAttached(0);
  job.StartAll();
  job.Run(seconds(3));
  ASSERT_TRUE(attached->ready());
  NativeNode* const second = job.AddAttached(0);
  second->Start();
  job.Run(seconds(2));
  EXPECT_THAT(second->refused.value().message(),
              HasSubstr("is attached there (another process has this rank)"));
}

class Loss : public FourNodes {
 protected:
  // Every node but `gone` was notified once, and only, of `text`.
  void ExpectVerdict(const NativeNode* gone, const std::string& text) {
    for (const auto& node : job.natives) {
      if (node.get() == gone) continue;
      ASSERT_EQ(node->failures.size(), 1U);
      EXPECT_EQ(node->failures.at(0).code(), bs::StatusCode::kUnavailable);
      EXPECT_THAT(node->failures.at(0).message(), HasSubstr(text));
    }
    ASSERT_TRUE(job.finished);
    EXPECT_THAT(job.finished->message(), HasSubstr(text));
    EXPECT_EQ(job.calls_of_finished, 1);
  }
  bs::sim::SimExecutor executor{&job.clock};
};

TEST_F(Loss, KilledWorkerIsNamedToAll) {
  w0->Barrier(kWorkerGroup);
  w0->Barrier(kWorkerGroup);
  w1->Kill();
  job.Run(seconds(5));
  ExpectVerdict(w1, "lost worker 1 (10.0.0.8:4712): connection closed");
  // The owner knows of the failure before a caller of a barrier can ask it.
  EXPECT_THAT(w0->ends, ElementsAre("failure", "barrier", "barrier"));
  EXPECT_EQ(w0->barriers.at(0).code(), bs::StatusCode::kUnavailable);
  EXPECT_THAT(w0->barriers.at(0).message(), HasSubstr("lost worker 1"));
  EXPECT_EQ(w0->barriers.at(1).message(), w0->barriers.at(0).message());
}

TEST_F(Loss, KilledServerIsNamedToAll) {
  s1->Kill();
  job.Run(seconds(5));
  ExpectVerdict(s1, "lost server 1 (10.0.0.6:4714): connection closed");
}

TEST_F(Loss, KilledSchedulerNodeIsNamedByAll) {
  job.KillCoordinator();
  job.Run(seconds(5));
  for (const auto& node : job.natives) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_EQ(node->failures.at(0).ToString(),
              "kUnavailable: lost the scheduler node (10.0.0.100:9091): connection closed");
  }
  w0->Leave();
  job.Run(seconds(1));
  EXPECT_THAT(w0->left.value().message(), HasSubstr("lost the scheduler node"));
}

TEST_F(Loss, SchedulerNodeThatIsKilledWhileAWorkerLeavesIsNamedByAll) {
  w0->Leave();
  job.KillCoordinator();  // before it answers
  job.Run(seconds(5));
  ASSERT_TRUE(w0->left.has_value());
  EXPECT_THAT(w0->left->message(), HasSubstr("lost the scheduler node (10.0.0.100:9091)"));
  for (const NativeNode* node : {w1, s0, s1}) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_THAT(node->failures.at(0).message(), HasSubstr("lost the scheduler node"));
  }
}

TEST_F(Loss, ConnectionThatComesBackIsNoLoss) {
  job.network.CutOff(w1->transport(), milliseconds(700));
  job.Run(seconds(10));
  EXPECT_TRUE(w0->failures.empty());
  EXPECT_TRUE(w1->failures.empty());
  EXPECT_FALSE(job.finished);
  w1->Send(ServerId(0), "again");
  job.Run(seconds(1));
  EXPECT_EQ(s0->data.size(), 1U);
}

TEST_F(Loss, AServerThatIsKilledAndStartedAgainAtOnceIsNamedThoughItsConnectionsAreBack) {
  s1->Kill();
  job.Run(milliseconds(300));
  NativeNode* const again = job.AddNative(Role::kServer, "10.0.0.6", 4714);
  again->Start();
  job.Run(seconds(3));
  const std::string text =
      "lost server 1 (10.0.0.6:4714): connection closed, and another process has its address";
  ASSERT_TRUE(again->refused);
  EXPECT_THAT(again->refused->message(), HasSubstr(text));
  again->failures.push_back(*again->refused);
  ExpectVerdict(s1, text);
}

// The registration of another worker that has this address; not with the sequence of that one.
Message RegistrationAt(const std::string& host, int32_t port, uint64_t sequence = 7) {
  Message message;
  message.peer = kSchedulerId;
  message.meta.is_control = true;
  message.meta.control.command = Command::kAck;
  message.meta.control.nodes = {{Role::kWorker, kEmpty, host, port, false, 0}};
  message.meta.extension.version = kExtensionVersion;
  message.meta.extension.op = Op::kRegister;
  message.meta.extension.sequence = sequence;
  return message;
}

TEST_F(Loss, LiveWorkerIsKeptWhenAnotherProcessRegistersAtItsAddress) {
  auto stranger = job.network.MakeTransport(&executor);
  stranger->Start({[](const Message&) {}, {}, {}, {}});
  stranger->Connect(kSchedulerId, job.options.root, kEmpty);
  job.network.CutOff(w1->transport(), milliseconds(700));
  for (int i = 0; i < 10; ++i) {
    stranger->Send(RegistrationAt("10.0.0.8", 4712));
    job.Run(milliseconds(500));
  }
  EXPECT_FALSE(job.finished);
  EXPECT_TRUE(w1->failures.empty());
  EXPECT_TRUE(
      job.Logged("another process registers at the address of worker 1 (10.0.0.8:4712): if "
                 "that one still runs, give each worker a DMLC_NODE_HOST and DMLC_PORT"));
  stranger.reset();
}

// A process that goes on registering at the address of another while the last node comes.  Its host
// has run for longer, so that its sequences are larger.
class Second {
 public:
  static constexpr uint64_t kSequence = uint64_t{1} << 62U;
  Second(Job* job, const Meta& registration) : executor_(&job->clock) {
    transport_ = job->network.MakeTransport(&executor_);
    transport_->Start({[](const Message&) {}, {}, {}, {}});
    transport_->Connect(kSchedulerId, job->options.root, kEmpty);
    for (int i = 0; i < 60; ++i) {
      executor_.PostAt(job->clock.Now() + i * milliseconds(50), [this, registration] {
        Message message;
        message.peer = kSchedulerId;
        message.meta = registration;
        transport_->Send(std::move(message));
      });
    }
    job->Run(seconds(1));
  }

 private:
  bs::sim::SimExecutor executor_;
  std::unique_ptr<Transport> transport_;
};

TEST(OneAddress, OfTwoProcessesIsLoggedAndTheJobBeginsWithTheListener) {
  Gathering gathering;
  Job& job = gathering.job;
  EXPECT_FALSE(job.Logged("another process registers"));
  const Second second(&job, RegistrationAt("10.0.0.1", 4711, Second::kSequence).meta);
  EXPECT_TRUE(job.Logged("another process registers at the address of worker 10.0.0.1:4711: if"));
  NativeNode* const last = job.AddNative(Role::kWorker);
  last->Start();
  job.Run(seconds(4));
  ASSERT_TRUE(gathering.worker->ready() && last->ready());
  gathering.worker->Barrier(kWorkerGroup);
  last->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  ASSERT_EQ(last->barriers.size(), 1U);
  EXPECT_TRUE(last->barriers.front().ok());
  EXPECT_FALSE(job.finished);
}

TEST(OneAddress, OfTwoAttachedWorkersBelongsToTheListener) {
  Job job(1);
  job.AddNative(Role::kServer);
  job.AddStock(Role::kWorker);
  MembershipOptions own = job.options;
  own.node_host = "10.0.0.2";
  own.node_port = job.NextPort();
  own.attach = true;
  own.wanted_rank = 0;
  NativeNode* const attached = job.AddNative(own);
  job.StartAll();
  job.Run(seconds(1));
  Meta registration = RegistrationAt("10.0.0.2", own.node_port, Second::kSequence).meta;
  registration.extension.op = Op::kAttach;
  registration.extension.body = Encode(MemberBody{.rank = 0});
  const Second second(&job, registration);
  job.AddStock(Role::kWorker)->Start();
  job.Run(seconds(4));
  EXPECT_TRUE(attached->ready());
  EXPECT_FALSE(job.finished);
}

TEST_F(Loss, CutOffForLongIsALoss) {
  job.network.CutOff(w1->transport(), seconds(20));
  job.Run(seconds(10));
  ExpectVerdict(w1, "lost worker 1");
  ASSERT_EQ(w1->failures.size(), 1U);  // it sees all nodes vanish, and names one of them
}

TEST_F(Loss, SilentMemberIsLost) {
  job.network.Mute(s0->transport());
  job.Run(seconds(29));
  EXPECT_FALSE(job.finished);
  job.Run(seconds(5));
  ExpectVerdict(s0,
                "lost server 0 (10.0.0.7:4713): silent for 30 s (BYTESCHEDULER_HEARTBEAT_TIMEOUT)");
}

TEST_F(Loss, ReportedFailureReachesAllNodesWithTheReporter) {
  w0->ReportFailure(bs::Status::Internal("disk full"));
  job.Run(seconds(2));
  EXPECT_TRUE(w0->failures.empty());  // it knows
  for (const NativeNode* node : {w1, s0, s1}) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_EQ(node->failures.at(0).ToString(), "kInternal: disk full (reported by worker 0)");
  }
  EXPECT_TRUE(job.finished.has_value());
}

TEST_F(Loss, AbortIsToldToAll) {
  job.Abort(bs::Status::Cancelled("interrupted at the scheduler node"));
  job.Run(seconds(2));
  for (const auto& node : job.natives) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_EQ(node->failures.at(0).message(), "interrupted at the scheduler node");
    node->Leave();
  }
  job.Run(seconds(5));
  for (const auto& node : job.natives) EXPECT_TRUE(node->left.has_value());
  EXPECT_EQ(job.finished->code(), bs::StatusCode::kCancelled);
}

TEST_F(Loss, FailureEndsTheCoordinatorInTimeEvenIfNoNodeConfirms) {
  for (NativeNode* node : {w0, s0, s1}) job.network.Mute(node->transport());
  w1->Kill();
  const bs::TimePoint begin = job.clock.Now();
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished);
  EXPECT_LT(job.finished_at - begin, milliseconds(3500));  // grace and farewell
}

TEST_F(Loss, NodeThatGoesAfterAllLeftIsNoLoss) {
  w0->Leave();
  w1->Leave();
  job.Run(milliseconds(200));
  s1->Kill();
  job.Run(seconds(10));
  EXPECT_TRUE(job.finished.value().ok());
}

// A running job of two stock workers, with a native one beside one of them.
class StockLoss : public ::testing::Test {
 protected:
  void StartBeside(int32_t rank) {
    attached = job.AddAttached(rank);
    job.StartAll();
    job.Run(seconds(3));
    ASSERT_TRUE(attached->ready());
  }

  Job job{1};
  StockNode* const w0 = job.AddStock(Role::kWorker, "10.0.0.9");
  StockNode* const w1 = job.AddStock(Role::kWorker, "10.0.0.8");
  NativeNode* const server = job.AddNative(Role::kServer);
  NativeNode* attached = nullptr;
};

TEST_F(StockLoss, KilledStockWorkerFailsTheJobAndFreesStockBarriers) {
  StartBeside(0);
  w0->Barrier(kWorkerGroup);
  job.Run(seconds(1));
  EXPECT_EQ(w0->barrier_answers, 1);
  w1->Kill();
  job.Run(seconds(5));
  EXPECT_EQ(w0->barrier_answers, 2);
  const std::string want = "lost worker 1 (10.0.0.8:4712): connection closed";
  EXPECT_THAT(job.finished.value().message(), HasSubstr(want));
  EXPECT_THAT(server->failures.at(0).message(), HasSubstr(want));
  EXPECT_THAT(attached->failures.at(0).message(), HasSubstr(want));
  EXPECT_TRUE(w0->data.empty()) << "the native worker beside it tells";
}

TEST_F(StockLoss, WorkersWithoutAnAttachedNativeWorkerAreEnded) {
  StartBeside(1);
  server->Kill();
  job.Run(seconds(5));
  EXPECT_THAT(job.finished.value().message(), HasSubstr("lost server 0"));
  EXPECT_THAT(w0->data, testing::ElementsAre("1: "));
  EXPECT_TRUE(w1->data.empty());
}

TEST(StockLossOfOne, AttachedWorkerThatHasNotHeardOfTheJobYetHearsOfItsEnd) {
  Job job(1);
  job.options.num_workers = 1;
  StockNode* const worker = job.AddStock(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  NativeNode* const attached = job.AddAttached(0);
  job.StartCoordinator();
  server->Start();
  attached->Start();
  job.Run(milliseconds(900));
  job.network.Mute(attached->transport());  // its repeats are lost
  worker->Start();
  while (!job.Logged("all nodes are there")) ASSERT_TRUE(job.clock.Step());
  server->Kill();  // before it has heard of the attached one
  job.Run(seconds(40));
  ASSERT_TRUE(job.finished && attached->refused);
  EXPECT_THAT(job.finished->message(), HasSubstr("lost server 0 (10.0.0.1:4712)"));
  EXPECT_EQ(attached->refused->message(), job.finished->message());
}

TEST(StockLossOfOne, KilledAttachedWorkerIsNamed) {
  Job job(1);
  job.options.num_workers = 1;
  StockNode* const worker = job.AddStock(Role::kWorker);
  NativeNode* const server = job.AddNative(Role::kServer);
  NativeNode* const attached = job.AddAttached(0);
  job.StartAll();
  job.Run(seconds(3));
  attached->Kill();
  job.Run(seconds(5));
  EXPECT_THAT(job.finished.value().message(), HasSubstr("lost worker 0 (10.0.0.2:"));
  EXPECT_THAT(server->failures.at(0).message(), HasSubstr("lost worker 0 (10.0.0.2:"));
  worker->Barrier(kEveryone);
  job.Run(seconds(1));
}

}  // namespace
}  // namespace ps::test
