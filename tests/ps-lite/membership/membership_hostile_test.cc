// Membership and strangers: whatever they send is dropped by name, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "membership/control_body.h"
#include "membership/violation_limiter.h"
#include "ps-lite/membership/membership_harness.h"
#include "wire/control.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

Body BodyOf(uint64_t job) { return Encode(MemberBody{.job = job}); }

// Messages of unknown and broken peers are dropped with a line that names them; the job goes on.
class Hostile : public ::testing::Test {
 protected:
  explicit Hostile(uint64_t seed = 17, int32_t num_workers = 1) : job(seed) {
    job.options.num_workers = num_workers;
    job.options.timeout = seconds(300);
    worker = job.AddNative(Role::kWorker);
    server = job.AddNative(Role::kServer);
    stranger = job.network.MakeTransport(&executor);
    stranger->Start({[this](const Message&) { ++answers; }, {}, {}, {}});
    stranger->Bind({"10.6.6.6", 666}, [](const bs::Result<int32_t>&) {});
  }
  void TearDown() override { stranger.reset(); }
  void Send(const Address& to, int32_t as, const Meta& meta) {
    stranger->Connect(5, to, as);
    Message message;
    message.peer = 5;
    message.meta = meta;
    stranger->Send(std::move(message));
    job.Run(milliseconds(1100));  // so that every log line is written
  }
  void ExpectOthersMeet() {
    worker->Start();
    server->Start();
    job.Run(seconds(3));
    ExpectJobGoesOn();
  }
  void ExpectJobGoesOn() {
    worker->Barrier(kWorkerGroup);
    job.Run(seconds(1));
    ASSERT_EQ(worker->barriers.size(), 1U);
    EXPECT_TRUE(worker->barriers.at(0).ok());
    EXPECT_FALSE(job.finished);
    EXPECT_TRUE(worker->failures.empty());
    EXPECT_TRUE(server->failures.empty());
  }
  static Meta Control(Command command) {
    Meta meta;
    meta.is_control = true;
    meta.control.command = command;
    return meta;
  }
  Job job;
  NativeNode* worker;
  NativeNode* server;
  bs::sim::SimExecutor executor{&job.clock};
  std::unique_ptr<Transport> stranger;
  int answers = 0;
};

TEST_F(Hostile, NothingBeforeTheRendezvousDisturbsIt) {
  job.StartCoordinator();
  job.Run(seconds(1));
  const Address root = job.options.root;
  for (const int32_t as : {kEmpty, 9, 8, 1, 0, -7, AttachedId(0)}) {
    for (int32_t command = -1; command < 8; ++command) {
      Meta meta = Control(static_cast<Command>(command));
      Send(root, as, meta);
      meta.control.nodes = {{static_cast<Role>(77), 9, "", -1, true, 5}};
      Send(root, as, meta);
      meta.control.nodes = {{Role::kScheduler, 1, "10.6.6.6", 666, false, 0}};
      meta.extension.version = kExtensionVersion;
      Send(root, as, meta);
    }
    Send(root, as, Meta());
  }
  EXPECT_TRUE(job.Logged("refused: scheduler node 10.6.6.6:666: the job has one already"));
  EXPECT_GT(answers, 0);  // it was told
  ExpectOthersMeet();
}

TEST_F(Hostile, ARegistrationOfAnotherVersionIsRefusedAndOtherNodesWaitOn) {
  job.StartCoordinator();
  Meta meta = NativeControl(Command::kAddNode, Op::kRegister, 5);
  meta.extension.version = kExtensionVersion + 1;
  meta.control.nodes = {{Role::kWorker, kEmpty, "10.6.6.6", 666, false, 0}};
  Send(job.options.root, kEmpty, meta);
  job.Run(seconds(1));
  EXPECT_TRUE(job.Logged("worker 10.6.6.6:666 speaks version 2, the job version 1"));
  EXPECT_GT(answers, 0);  // it was told
  ExpectOthersMeet();
}

TEST_F(Hostile, StrangersInARunningJobAreDroppedAndNamed) {
  job.StartAll();
  job.Run(seconds(2));
  const Address root = job.options.root;
  Meta beat = Control(Command::kHeartbeat);
  Send(root, 13, beat);
  EXPECT_TRUE(job.Logged("dropped a message from worker 2: it is not in this job"));
  Send(root, kEmpty, beat);
  EXPECT_TRUE(job.Logged("dropped a message from an anonymous peer: no registration"));
  Meta data;
  Send(root, 9, data);
  EXPECT_TRUE(job.Logged("dropped a message from worker 0: data for the scheduler node"));
  const Address at_server{"10.0.0.1", 4712};
  Send(at_server, 13, data);
  EXPECT_TRUE(job.Logged("dropped a message from worker 2: data of a node that is not in the job"));
  Send(at_server, 9, Control(Command::kAddNode));
  EXPECT_TRUE(job.Logged("control that is not the scheduler node's"));
  ExpectJobGoesOn();
}

// Processes of a job that has ended go on trying for a while, and addresses are used again.
class OfAnotherJob : public Hostile {
 protected:
  static constexpr uint64_t kOther = 8;
  OfAnotherJob() { job.options.job = 7; }
  static Meta Word(Command command, Op op) {
    Meta meta = NativeControl(command, op, uint64_t{1} << 62U);
    meta.extension.body = BodyOf(kOther);
    return meta;
  }
  // All that would end a member, or bring it into the wrong job.
  void SayTo(const Address& member) {
    Send(member, kSchedulerId, Word(Command::kNone, Op::kShutdown));
    Send(member, kSchedulerId, Word(Command::kHeartbeat, Op::kShutdown));
    Meta failed = Word(Command::kNone, Op::kStatus);
    failed.extension.status = 2;
    Send(member, kSchedulerId, failed);
    Meta list = Word(Command::kAddNode, Op::kRegister);
    list.control.nodes = {{Role::kWorker, 9, "10.0.0.1", 4711, false, 0},
                          {Role::kServer, 8, "10.0.0.1", 4712, false, 0}};
    Send(member, kSchedulerId, list);
  }
  static constexpr const char* kDropped =
      "dropped a message from the scheduler: it is of another job";
};

TEST_F(OfAnotherJob, ASchedulerNodeDoesNotDisturbANodeThatRegisters) {
  worker->Start();
  job.Run(milliseconds(100));
  SayTo({"10.0.0.1", 4711});
  EXPECT_TRUE(job.Logged(kDropped));
  EXPECT_EQ(worker->calls_of_ready, 0);
  job.StartCoordinator();
  server->Start();
  job.Run(seconds(3));
  ASSERT_TRUE(worker->ready());
  ExpectJobGoesOn();
}

TEST_F(OfAnotherJob, ASchedulerNodeDoesNotDisturbNodesInTheJob) {
  job.StartAll();
  job.Run(seconds(2));
  SayTo({"10.0.0.1", 4711});
  SayTo({"10.0.0.1", 4712});
  EXPECT_TRUE(job.Logged(kDropped));
  ExpectJobGoesOn();
}

TEST_F(OfAnotherJob, AMemberDoesNotDisturbTheSchedulerNode) {
  job.StartAll();
  job.Run(seconds(2));
  Send(job.options.root, 9, Word(Command::kNone, Op::kLeave));
  Meta failed = Word(Command::kHeartbeat, Op::kState);
  failed.extension.status = 2;
  Send(job.options.root, 8, failed);
  Meta barrier = Word(Command::kBarrier, Op::kNone);
  barrier.request = true;
  barrier.control.barrier_group = kWorkerGroup;
  Send(job.options.root, 9, barrier);
  EXPECT_TRUE(job.Logged("dropped a message from server 0: it is of another job"));
  EXPECT_TRUE(worker->workers_left.empty() && server->workers_left.empty());
  ExpectJobGoesOn();
}

TEST_F(OfAnotherJob, TheEndOfTheOwnJobIsToldBeforeItHasBegunToo) {
  worker->Start();
  job.StartCoordinator();
  job.Run(seconds(6));  // it has said which nodes are missing
  Meta over = Word(Command::kNone, Op::kShutdown);
  over.extension.body = BodyOf(7);
  Send({"10.0.0.1", 4711}, kSchedulerId, over);
  ASSERT_TRUE(worker->refused.has_value());
  EXPECT_EQ(worker->refused->message(), "the job is over");
}

TEST_F(OfAnotherJob, TheEndOfTheOwnJobIsToldBeforeTheBarrierThatItEnds) {
  job.StartAll();
  job.Run(seconds(2));
  worker->Barrier(kEveryone);  // the server does not come
  Meta over = Word(Command::kNone, Op::kShutdown);
  over.extension.body = BodyOf(7);
  Send({"10.0.0.1", 4711}, kSchedulerId, over);
  EXPECT_THAT(worker->ends, ElementsAre("shutdown", "barrier"));
  EXPECT_EQ(worker->barriers.at(0).message(), "the job is over");
}

// Its connection was that of a node which has the id now, and its sequences are as good.
TEST_F(OfAnotherJob, DataOfAnotherJobReachesNoNode) {
  job.StartAll();
  job.Run(seconds(2));
  const Address at_worker{"10.0.0.1", 4711};
  const Address at_server{"10.0.0.1", 4712};
  Meta push;
  push.extension = {.version = kExtensionVersion, .op = Op::kPush, .sequence = 1};
  for (const uint32_t mark : {uint32_t{0}, JobMark(kOther)}) {
    push.extension.job = mark;
    push.request = true;
    Send(at_server, 9, push);
    push.request = false;
    Send(at_worker, 8, push);
  }
  EXPECT_TRUE(worker->data.empty() && server->data.empty());
  EXPECT_TRUE(job.Logged("dropped a message from worker 0: it is of another job"));
  EXPECT_TRUE(job.Logged("dropped a message from server 0: it is of another job"));
  push.extension.job = JobMark(7);
  Send(at_worker, 8, push);
  push.request = true;
  Send(at_server, 9, push);
  EXPECT_EQ(worker->data.size(), 1U);
  EXPECT_EQ(server->data.size(), 1U);
  ExpectJobGoesOn();
}

// It was stopped while its own job ended and another began at the same addresses.
TEST_F(OfAnotherJob, ANodeThatSleptThroughTheEndOfItsJobIsToldByTheNextJob) {
  job.StartAll();
  job.Run(seconds(2));
  job.KillCoordinator();
  job.options.job = kOther;
  job.StartCoordinator();
  job.Run(seconds(5));
  for (const NativeNode* const node : {worker, server}) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_EQ(node->failures.front().message(),
              "lost the scheduler node: another job has its address, 10.0.0.100:9091");
  }
  EXPECT_FALSE(job.finished);
}

TEST_F(OfAnotherJob, NoAnswerGoesToTheAddressOfANodeOfTheJob) {
  job.StartAll();
  job.Run(seconds(2));
  Meta beat = Word(Command::kHeartbeat, Op::kState);
  beat.control.nodes = {{Role::kWorker, 9, "10.6.6.6", 666, false, 0}};
  beat.extension.body = {};  // an answer would carry this job's number
  Send(job.options.root, 9, beat);
  EXPECT_EQ(answers, 0);
  beat.extension.body = BodyOf(kOther);
  Send(job.options.root, 9, beat);
  EXPECT_EQ(answers, 1);
  beat.control.nodes = {{Role::kWorker, 9, "10.0.0.1", 4711, false, 0}};
  const int64_t before = job.CountLogged("dropped a message from the scheduler");
  Send(job.options.root, 9, beat);
  EXPECT_EQ(job.CountLogged("dropped a message from the scheduler"), before);
  ExpectJobGoesOn();
}

// Another job, as bslaunch starts it: its nodes wait, and register with this scheduler node.
TEST_F(OfAnotherJob, ANodeMayRegisterWithOneSchedulerNodeAndJoinTheNext) {
  worker->Start();
  job.StartCoordinator();
  job.Run(seconds(6));
  EXPECT_TRUE(job.Logged("waiting for"));
  job.KillCoordinator();
  job.options.job = kOther;
  job.StartCoordinator();
  server->Start();
  job.Run(seconds(5));
  ASSERT_TRUE(worker->ready());
  EXPECT_TRUE(server->ready());
}

TEST_F(Hostile, OnlyAServerTakesAWorkersPlaceAway) {
  job.options.rejoin_timeout = seconds(60);
  job.StartAll();
  job.Run(seconds(2));
  Meta meta = Control(Command::kHeartbeat);
  const Node lost{Role::kWorker, 9, "10.0.0.1", 4711, false, 0};
  meta.control.nodes = {lost, lost};
  meta.extension.version = kExtensionVersion;
  meta.extension.op = Op::kVacate;
  meta.extension.text = "so they say";
  Send(job.options.root, 9, meta);
  EXPECT_FALSE(job.Logged("so they say"));
  ExpectJobGoesOn();
  Send(job.options.root, 8, meta);
  EXPECT_TRUE(job.Logged("so they say (noticed by server 0); its place is free"));
}

TEST_F(Hostile, AWorkerThatFoundAServerAgainIsNotJudgedByItsOldReports) {
  job.options.rejoin_timeout = seconds(60);
  job.StartAll();
  job.Run(seconds(2));
  Meta meta = Control(Command::kHeartbeat);
  meta.control.nodes = {{Role::kWorker, 9, "10.0.0.1", 4711, false, 0},
                        {Role::kServer, 8, "10.0.0.1", 4712, false, 0}};
  meta.extension.version = kExtensionVersion;
  meta.extension.op = Op::kVacate;
  meta.extension.text = "I cannot reach it";
  Send(job.options.root, 9, meta);
  job.Run(seconds(20));
  Send(job.options.root, 9, meta);
  job.Run(seconds(20));
  EXPECT_FALSE(job.Logged("I cannot reach it"));
  ExpectJobGoesOn();
  for (int i = 0; i < 4; ++i) Send(job.options.root, 9, meta);
  EXPECT_TRUE(job.Logged("I cannot reach it (by server 0 (10.0.0.1:4712), which is there)"));
}

// An impostor with any id, in jobs with and without places that can be taken again.
using RejoinAndSeed = std::tuple<seconds, uint64_t>;
class Impersonated : public Hostile, public ::testing::WithParamInterface<RejoinAndSeed> {
 protected:
  Impersonated() : Hostile(std::get<1>(GetParam())) {
    job.options.rejoin_timeout = std::get<0>(GetParam());
  }
  int32_t Draw(uint64_t below) { return static_cast<int32_t>(job.clock.Uniform(0, below - 1)); }
  Meta AnyControl() {
    Meta meta = Control(static_cast<Command>(Draw(7)));
    meta.request = job.clock.Chance(0.5);
    meta.control.barrier_group = Draw(13) - 3;
    const int32_t nodes = Draw(4);
    for (int32_t n = 0; n < nodes; ++n) {
      meta.control.nodes.push_back(
          {static_cast<Role>(Draw(4)), Draw(21), "10.6.6.6", Draw(70001), false, 0});
    }
    meta.extension.version = static_cast<uint32_t>(Draw(3));
    const std::vector<uint32_t> ops = {0, 5, 16, 17, 18, 19, 20, 21, 22, 99};
    meta.extension.op = static_cast<Op>(ops.at(Draw(ops.size())));
    meta.extension.sequence = job.clock.Uniform(0, 5);
    meta.extension.body =
        Encode(MemberBody{.incarnation = job.clock.Uniform(0, 1), .rank = Draw(5) - 2});
    if (job.clock.Chance(0.1)) meta.extension.body = Body("\xba\x06\x01j");  // of another wire type
    meta.extension.status = job.clock.Chance(0.1) ? 77 : 0;
    return meta;
  }
  // A report of a lost node that is often valid, which AnyControl hardly ever makes.
  Meta AnyLoss() {
    Meta meta = Control(job.clock.Chance(0.5) ? Command::kHeartbeat : Command::kNone);
    const int32_t nodes = job.clock.Chance(0.5) ? 2 : Draw(4);
    for (int32_t n = 0; n < nodes; ++n) {
      const bool of_worker = job.clock.Chance(0.7);
      const int32_t any_id = std::vector<int32_t>{8, 9, 9, 9, 11, AttachedId(0), -4}.at(Draw(7));
      meta.control.nodes.push_back({of_worker ? Role::kWorker : Role::kServer, any_id, "10.0.0.1",
                                    of_worker ? 4711 : 4712, false, 0});
    }
    meta.extension.version = kExtensionVersion;
    meta.extension.op = Op::kVacate;
    meta.extension.sequence = job.clock.Uniform(0, uint64_t{1} << 62U);
    meta.extension.body = Encode(MemberBody{.incarnation = job.clock.Uniform(0, 2),
                                            .lost_incarnation = job.clock.Chance(0.7) ? 0U : 1U});
    meta.extension.text = "so they say";
    return meta;
  }
};

TEST_P(Impersonated, ControlOfAnyShapeIsSurvived) {
  job.StartAll();
  job.Run(seconds(2));
  const std::vector<Address> targets = {job.options.root, {"10.0.0.1", 4711}, {"10.0.0.1", 4712}};
  const std::vector<int32_t> as = {kEmpty, kSchedulerId, 8, 9, 11, AttachedId(0), 0, -1};
  for (int i = 0; i < 300; ++i) {
    const bool loss = job.clock.Chance(0.3);
    const int32_t from = loss && job.clock.Chance(0.5) ? ServerId(0) : as.at(Draw(as.size()));
    stranger->Connect(5, targets.at(Draw(3)), from);
    Message message;
    message.peer = 5;
    message.meta = loss ? AnyLoss() : AnyControl();
    stranger->Send(std::move(message));
    job.Run(milliseconds(job.clock.Uniform(0, 20)));
  }
  // An impostor can end the job; it must not crash or hang it.
  worker->Leave();
  job.Run(seconds(700));
  EXPECT_TRUE(worker->left.has_value());
  EXPECT_TRUE(job.finished.has_value());
}

INSTANTIATE_TEST_SUITE_P(Hostile, Impersonated,
                         ::testing::Combine(::testing::Values(seconds(0), seconds(60)),
                                            ::testing::Range<uint64_t>(1, 31)));

// Attached workers are in no list that others get.
TEST(AnotherJob, NoAnswerGoesToTheAddressOfAnAttachedWorker) {
  Job job(17);
  job.options.job = 7;
  job.options.num_workers = 1;
  StockNode* const worker = job.AddStock(Role::kWorker);
  job.AddNative(Role::kServer);
  MembershipOptions own = job.options;
  own.role = Role::kWorker;
  own.node_host = "10.0.0.2";
  own.node_port = 4999;
  own.attach = true;
  own.wanted_rank = 0;
  NativeNode* const attached = job.AddNative(own);
  job.StartCoordinator();
  attached->Start();
  job.Run(seconds(2));
  bs::sim::SimExecutor executor(&job.clock);
  auto stranger = job.network.MakeTransport(&executor);
  stranger->Start({[](const Message&) {}, {}, {}, {}});
  stranger->Connect(kSchedulerId, job.options.root, WorkerId(0));
  const auto beat = [&] {
    Message message;
    message.peer = kSchedulerId;
    message.meta = NativeControl(Command::kHeartbeat, Op::kState, 1);
    message.meta.extension.body = BodyOf(8);
    message.meta.control.nodes = {{Role::kWorker, WorkerId(0), "10.0.0.2", 4999, false, 0}};
    stranger->Send(std::move(message));
    job.Run(seconds(2));
  };
  beat();  // while it waits for the others
  worker->Start();
  job.natives.front()->Start();
  job.Run(seconds(5));
  ASSERT_TRUE(attached->ready());
  beat();
  EXPECT_TRUE(job.Logged("dropped a message from worker 0: it is of another job"));
  EXPECT_FALSE(job.Logged("dropped a message from the scheduler"));
  stranger.reset();
}

// A member of the job that goes on sending what makes no sense is dropped and named.
class ProtocolViolations : public Hostile {
 protected:
  ProtocolViolations() : Hostile(17, 2) { second = job.AddNative(Role::kWorker); }
  void StartAll() {
    job.StartAll();
    job.Run(seconds(2));
  }
  void Say(int32_t to, const Meta& meta, uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) {
      Message message;
      message.peer = to;
      message.meta = meta;
      worker->transport()->Send(std::move(message));
    }
    job.Run(seconds(1));
  }
  static Meta NativeData() {
    Meta meta = NativeControl(Command::kNone, Op::kPush, 1);
    meta.is_control = false;
    return meta;
  }
  NativeNode* second;
};

TEST_F(ProtocolViolations, OfAWorkerToAServerEndsTheJobWithItsNameBeyondSomeThousands) {
  StartAll();
  Say(8, Control(Command::kAddNode), ViolationLimiter::kMost);
  EXPECT_FALSE(job.finished);
  EXPECT_TRUE(job.Logged("dropped a message from worker 0: control that is not"));
  job.Run(ViolationLimiter::kWindow);
  Say(8, Control(Command::kAddNode), ViolationLimiter::kMost);
  EXPECT_FALSE(job.finished) << "not so many in that time";
  Say(8, Control(Command::kAddNode), 1);
  ASSERT_EQ(second->failures.size(), 1U);
  EXPECT_THAT(second->failures.front().message(),
              ::testing::HasSubstr("it sends what makes no sense: control that is not the "
                                   "scheduler node's"));
  EXPECT_THAT(second->failures.front().message(), ::testing::HasSubstr("lost worker 0"));
}

TEST_F(ProtocolViolations, ToTheSchedulerNodeEndsTheJobWithItsName) {
  StartAll();
  Say(kSchedulerId, NativeData(), ViolationLimiter::kMost + 1);
  for (NativeNode* const node : {second, server}) {
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_THAT(node->failures.front().message(),
                ::testing::AllOf(::testing::HasSubstr("lost worker 0"),
                                 ::testing::HasSubstr("data for the scheduler node")));
  }
}

// The node that has the id now did not send it.
TEST_F(ProtocolViolations, OfAnotherJobIsNotCounted) {
  StartAll();
  Meta control = NativeControl(Command::kHeartbeat, Op::kState, 1);
  control.extension.body = BodyOf(job.options.job + 1);
  Meta data = NativeData();
  data.extension.job = JobMark(job.options.job + 1);
  for (const int32_t to : {kSchedulerId, ServerId(0)}) {
    for (const Meta& meta : {control, data}) {
      const int64_t before =
          job.CountLogged("dropped a message from worker 0: it is of another job");
      Say(to, meta, 2 * ViolationLimiter::kMost);
      EXPECT_GT(job.CountLogged("dropped a message from worker 0: it is of another job"), before);
    }
  }
  second->Barrier(kWorkerGroup);
  ExpectJobGoesOn();
}

// A transport that shows what it was started with.
class ShownTransport final : public Transport {
 public:
  explicit ShownTransport(Handler* handler) : handler_(handler) {}
  void Start(Handler handler) override { *handler_ = std::move(handler); }
  void Bind(const Address&, BindDone) override {}
  void Connect(int32_t, const Address&, int32_t) override {}
  void Disconnect(int32_t, bs::Duration) override {}
  void Send(Message) override {}
  void Close(bs::Duration) override {}

 private:
  Handler* const handler_;
};

// A worker's transport that binds at once and shows what was sent last.
class BoundTransport final : public Transport {
 public:
  void Start(Handler h) override { handler = std::move(h); }
  void Bind(const Address&, BindDone done) override { done(4711); }
  void Connect(int32_t, const Address&, int32_t) override {}
  void Disconnect(int32_t, bs::Duration) override {}
  void Send(Message message) override { sent = message.meta; }
  void Close(bs::Duration) override {}
  Handler handler;
  Meta sent;
};

TEST(Landing, IsForDataOfThisJobOnly) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  BoundTransport transport;
  MembershipOptions options;
  options.node_host = "10.0.0.1";
  Member member(options, &transport, &executor, bs::Logger());
  Member::Handler owner;
  owner.on_ready = [](const bs::Result<View>& view) { EXPECT_EQ(view.value().job, 7U); };
  owner.place = [](int32_t, const Meta&, uint64_t) { return std::make_shared<Landing>(); };
  member.Start(owner);
  transport.handler.on_connected(kSchedulerId);
  const auto answer = [&](Meta meta) {
    meta.extension.body = BodyOf(7);
    Message message;
    message.peer = kSchedulerId;
    message.meta = std::move(meta);
    transport.handler.on_message(std::move(message));
  };
  const uint64_t registration = transport.sent.extension.sequence;
  Meta list = NativeControl(Command::kAddNode, Op::kRegister, registration);
  list.control.nodes = {{Role::kWorker, 9, "10.0.0.1", 4711, false, 0},
                        {Role::kServer, 8, "10.0.0.1", 4712, false, 0}};
  answer(list);
  answer(NativeControl(Command::kBarrier, Op::kNone, transport.sent.extension.sequence));
  clock.RunUntil(clock.Now() + milliseconds(1));
  Meta data;
  data.extension = {.version = kExtensionVersion, .op = Op::kPull, .job = 7};
  EXPECT_NE(transport.handler.place(8, data, 4), nullptr);
  data.extension.job = 8;
  EXPECT_EQ(transport.handler.place(8, data, 4), nullptr);
  member.Close(bs::Duration(0));
}

// The transport names them by their addresses, once.
TEST(Garbage, OfStrangersIsNotNamedAgain) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  std::vector<std::string> lines;
  const bs::Logger log("", bs::LogLevel::kWarning,
                       [&](bs::LogLevel, std::string_view line) { lines.emplace_back(line); });
  Transport::Handler to_scheduler;
  ShownTransport scheduler(&to_scheduler);
  Coordinator coordinator({}, &scheduler, &executor, log);
  coordinator.Start({});
  Transport::Handler to_member;
  ShownTransport transport(&to_member);
  Member member({}, &transport, &executor, log);
  member.Start({});
  for (const int32_t peer : {kEmpty, 8, 9}) {
    to_scheduler.on_garbage(peer, bs::Status::InvalidArgument("no meta"));
    to_member.on_garbage(peer, bs::Status::InvalidArgument("no meta"));
  }
  EXPECT_THAT(lines, ::testing::IsEmpty());
  to_member.on_garbage(kSchedulerId, bs::Status::InvalidArgument("no meta"));
  EXPECT_THAT(lines, ::testing::ElementsAre(::testing::HasSubstr("scheduler: no meta")));
  coordinator.Close(bs::Duration(0));
  member.Close(bs::Duration(0));
}

TEST(MostBytes, ToTheSchedulerNodeAreFewFromEveryPeer) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  Transport::Handler handler;
  ShownTransport transport(&handler);
  Coordinator coordinator({}, &transport, &executor, bs::Logger());
  coordinator.Start({});
  for (const int32_t peer : {kEmpty, 8, 9}) EXPECT_FALSE(handler.knows(peer));
  Meta meta;
  EXPECT_EQ(handler.most_bytes(9, meta), uint64_t{64} << 10U);
  coordinator.Close(bs::Duration(0));
}

TEST(MostBytes, ToAMemberAreManyFromNodesOfTheJobOnly) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  Transport::Handler handler;
  ShownTransport transport(&handler);
  MembershipOptions options;
  options.role = Role::kServer;
  Member member(options, &transport, &executor, bs::Logger());
  Member::Handler owner;
  owner.announced_bytes = [](const Extension& request) { return request.sequence * 1000; };
  member.Start(std::move(owner));
  for (const int32_t peer : {kEmpty, 8, 9}) EXPECT_FALSE(handler.knows(peer));
  EXPECT_TRUE(handler.knows(kSchedulerId));
  Meta meta;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = Op::kPush;
  meta.extension.sequence = 1000;
  EXPECT_EQ(handler.most_bytes(9, meta), 1000000U);
  member.Close(bs::Duration(0));
}

}  // namespace
}  // namespace ps::test
