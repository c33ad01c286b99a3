// Membership and strangers: whatever they send is dropped by name, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What strangers and broken peers send: dropped with a line that names them, and the job goes on.
class Hostile : public ::testing::Test {
 protected:
  Hostile() {
    job.options.num_workers = 1;
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
  Job job{17};
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
  worker->Start();
  server->Start();
  job.Run(seconds(3));
  ExpectJobGoesOn();
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

TEST_F(Hostile, NobodyButAServerTakesAWorkersPlaceAway) {
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

TEST_F(Hostile, AWorkerThatHasFoundAServerAgainIsNotJudgedByWhatItSaidLongAgo) {
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

TEST_F(Hostile, ImpersonatedControlOfAnyShapeIsSurvived) {
  job.StartAll();
  job.Run(seconds(2));
  const std::vector<Address> targets = {job.options.root, {"10.0.0.1", 4711}, {"10.0.0.1", 4712}};
  for (int i = 0; i < 3000; ++i) {
    Meta meta = Control(static_cast<Command>(job.clock.Uniform(0, 6)));
    meta.request = job.clock.Chance(0.5);
    meta.control.barrier_group = static_cast<int32_t>(job.clock.Uniform(0, 12)) - 3;
    const uint64_t nodes = job.clock.Uniform(0, 3);
    for (uint64_t n = 0; n < nodes; ++n) {
      meta.control.nodes.push_back({static_cast<Role>(job.clock.Uniform(0, 3)),
                                    static_cast<int32_t>(job.clock.Uniform(0, 20)), "10.6.6.6",
                                    static_cast<int32_t>(job.clock.Uniform(0, 70000)), false, 0});
    }
    meta.extension.version = static_cast<uint32_t>(job.clock.Uniform(0, 2));
    const std::vector<uint32_t> ops = {0, 5, 16, 17, 18, 19, 20, 21, 99};
    meta.extension.op = static_cast<Op>(ops.at(job.clock.Uniform(0, ops.size() - 1)));
    meta.extension.sequence = job.clock.Uniform(0, 5);
    meta.extension.rank = static_cast<int32_t>(job.clock.Uniform(0, 4)) - 2;
    meta.extension.status = job.clock.Chance(0.1) ? 77 : 0;
    const std::vector<int32_t> as = {kEmpty, kSchedulerId, 8, 9, 11, AttachedId(0), 0, -1};
    stranger->Connect(5, targets.at(job.clock.Uniform(0, 2)),
                      as.at(job.clock.Uniform(0, as.size() - 1)));
    Message message;
    message.peer = 5;
    message.meta = meta;
    stranger->Send(std::move(message));
    job.Run(milliseconds(job.clock.Uniform(0, 20)));
  }
  // An impostor can end the job; it must not crash or hang it.
  worker->Leave();
  job.Run(seconds(700));
  EXPECT_TRUE(worker->left.has_value());
  EXPECT_TRUE(job.finished.has_value());
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

TEST(WhatMayBeSent, ToTheSchedulerNodeIsLittleByAnybody) {
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

TEST(WhatMayBeSent, ToAMemberIsMuchByNodesOfTheJobOnly) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  Transport::Handler handler;
  ShownTransport transport(&handler);
  MembershipOptions options;
  options.role = Role::kServer;
  Member member(options, &transport, &executor, bs::Logger());
  member.Start({});
  for (const int32_t peer : {kEmpty, 8, 9}) EXPECT_FALSE(handler.knows(peer));
  EXPECT_TRUE(handler.knows(kSchedulerId));
  Meta meta;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = Op::kPush;
  meta.extension.size_bytes = 1000000;
  EXPECT_EQ(handler.most_bytes(9, meta), 1000000U);
  member.Close(bs::Duration(0));
}

}  // namespace
}  // namespace ps::test
