// A server of ours in a job whose scheduler node is MXNet's own, on simulated time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// MXNet's own scheduler node: it counts registrations and barrier requests, and responds.
class StockScheduler {
 public:
  explicit StockScheduler(Job* job)
      : job_(job), executor_(&job->clock), transport_(job->network.MakeTransport(&executor_)) {
    executor_.Post([this] {
      Transport::Handler handler;
      handler.on_message = [this](const Message& message) { OnMessage(message); };
      transport_->Start(handler);
      transport_->Bind(job_->options.root, [](const bs::Result<int32_t>&) {});
    });
  }
  ~StockScheduler() { transport_->Close(bs::Duration(0)); }
  StockScheduler(const StockScheduler&) = delete;
  StockScheduler& operator=(const StockScheduler&) = delete;

  void Kill() { job_->network.Kill(transport_.get()); }
  void ShowItself() { job_->network.SetForeign(transport_.get()); }

  std::vector<Node> nodes;
  int dropped = 0;
  int natives = 0;  // messages with fields that it does not know

 private:
  void OnMessage(const Message& message) {
    ASSERT_TRUE(message.meta.is_control);  // data ends it
    const Control& control = message.meta.control;
    if (message.meta.native()) ++natives;
    switch (control.command) {
      case Command::kAddNode:
        ASSERT_EQ(message.peer, kEmpty);
        return Register(control.nodes.at(0));
      case Command::kBarrier:
        EXPECT_FALSE(message.meta.native());
        EXPECT_TRUE(message.meta.request);
        EXPECT_EQ(message.meta.app_id, 0);
        if (++arrived_[control.barrier_group] == static_cast<int>(nodes.size()) + 1) Release();
        return;
      case Command::kHeartbeat:
        ASSERT_NE(message.peer, kEmpty) << "a heartbeat before the list ends it";
        EXPECT_FALSE(message.meta.native());
        ++heartbeats;
        return Answer(message.peer, Command::kHeartbeat);
      case Command::kAck:
        ++dropped;
        return;
      default:
        FAIL() << "a command that it takes for data";
    }
  }
  void Register(const Node& node) {
    nodes.push_back(node);
    ASSERT_LE(nodes.size(), 2U) << "somebody registered twice";
    if (nodes.size() < 2) return;
    for (Node& entry : nodes) {
      entry.id = entry.role == Role::kServer ? ServerId(0) : WorkerId(0);
      transport_->Connect(entry.id, {entry.hostname, entry.port}, kSchedulerId);
    }
    Meta list = Stock(Command::kAddNode);
    list.control.nodes = nodes;
    list.control.nodes.push_back({Role::kScheduler, kSchedulerId, job_->options.root.host,
                                  job_->options.root.port, false, 4711});
    for (const Node& entry : nodes) Send(entry.id, list);
    arrived_[kEveryone] = 1;  // itself
  }
  void Release() {
    arrived_[kEveryone] = 1;
    for (const Node& node : nodes) Answer(node.id, Command::kBarrier);
  }
  void Answer(int32_t peer, Command command) {
    Meta meta = Stock(command);
    meta.app_id = command == Command::kBarrier ? 0 : kEmpty;
    meta.control.barrier_group = -17;  // garbage, as captured
    if (command == Command::kHeartbeat) {
      meta.control.nodes = {{Role::kScheduler, kSchedulerId, "10.0.0.100", 9091, false, 0}};
    }
    Send(peer, meta);
  }
  static Meta Stock(Command command) {
    Meta meta;
    meta.is_control = true;
    meta.control.command = command;
    return meta;
  }
  void Send(int32_t peer, Meta meta) {
    meta.timestamp = timestamp_++;
    transport_->Send({.peer = peer, .meta = std::move(meta)});
  }

 public:
  int heartbeats = 0;

 private:
  Job* const job_;
  int32_t timestamp_ = 0;
  std::map<int32_t, int> arrived_;
  bs::sim::SimExecutor executor_;
  const std::unique_ptr<Transport> transport_;
};

class StockSchedulerTest : public ::testing::Test {
 protected:
  StockSchedulerTest() { job.options.num_workers = 1; }
  // A server of ours that waits for a stock worker for a while.
  void StartServer() {
    server->Start();
    job.Run(seconds(10));
    EXPECT_EQ(scheduler.nodes.size(), 1U);
    EXPECT_GT(scheduler.dropped, 5) << "it repeats what would be counted";
  }
  void StartBoth() {
    StartServer();
    worker->Start();
    job.Run(seconds(2));
    ASSERT_TRUE(server->ready());
    EXPECT_EQ(server->view->own_id, ServerId(0));
    EXPECT_EQ(worker->barrier_answers, 1);
  }
  Job job{5};
  StockScheduler scheduler{&job};
  NativeNode* const server = job.AddNative(Role::kServer);
  StockNode* const worker = job.AddStock(Role::kWorker);
};

TEST_F(StockSchedulerTest, AServerJoinsItServesAndEndsWithTheFinalBarrier) {
  StartBoth();
  Meta push;
  push.request = true;
  push.push = true;
  worker->Send(ServerId(0), push, "values");
  job.Run(seconds(60));
  EXPECT_THAT(server->data, ElementsAre("9: values"));
  EXPECT_GT(scheduler.heartbeats, 10);
  server->JoinFinalBarrier();
  worker->Barrier(kEveryone);
  job.Run(seconds(2));
  EXPECT_EQ(worker->barrier_answers, 2);
  EXPECT_EQ(server->shutdowns, 1);
  EXPECT_TRUE(server->left.value().ok());
  EXPECT_TRUE(server->closed);
  EXPECT_TRUE(server->failures.empty());
}

TEST_F(StockSchedulerTest, AServerSaysWhichWorkerIsLost) {
  StartBoth();
  worker->Kill();
  job.Run(seconds(5));
  EXPECT_THAT(server->failures.at(0).message(), HasSubstr("lost worker 0 (10.0.0.9:4712)"));
}

TEST_F(StockSchedulerTest, AServerEndsAWorkerThatItDoesNotHearAnyMore) {
  StartBoth();
  Meta push;
  push.request = true;
  push.push = true;
  worker->Send(ServerId(0), push, "values");
  job.Run(seconds(1));
  job.network.Part(worker->transport(), server->transport());
  job.Run(seconds(5));
  const std::string why = "connection closed, and no other opened in 1 s";
  ASSERT_EQ(server->failures.size(), 1U);
  EXPECT_THAT(server->failures.front().message(), HasSubstr(why));
  ASSERT_EQ(worker->words.size(), 1U);  // no other process would notify it
  EXPECT_THAT(worker->words.front(), HasSubstr(why));
}

TEST_F(StockSchedulerTest, AServerSaysThatTheSchedulerNodeIsLost) {
  StartBoth();
  scheduler.Kill();
  job.Run(seconds(5));
  EXPECT_THAT(server->failures.at(0).message(), HasSubstr("lost the scheduler node"));
}

TEST_F(StockSchedulerTest, ANativeWorkerIsToldToTakeAnother) {
  StartServer();
  NativeNode* const native = job.AddNative(Role::kWorker, "10.0.0.3");
  native->Start();
  job.Run(seconds(2));
  EXPECT_THAT(native->refused.value().message(),
              HasSubstr("the scheduler node at 10.0.0.100:9091 is MXNet's own, which native "
                        "workers cannot join"));
  native->Close();
  job.Run(seconds(5));
  EXPECT_THAT(server->failures.at(0).message(), HasSubstr("lost worker 0"));
}

TEST_F(StockSchedulerTest, OneThatIsRecognisedGetsNoMessageThatItDoesNotKnow) {
  scheduler.ShowItself();
  server->Start();
  job.Run(seconds(10));
  EXPECT_EQ(scheduler.nodes.size(), 1U);
  worker->Start();
  job.Run(seconds(2));
  ASSERT_TRUE(server->ready());
  EXPECT_TRUE(job.Logged("is MXNet's own: it does not say which process is lost"));
  server->JoinFinalBarrier();
  worker->Barrier(kEveryone);
  job.Run(seconds(2));
  EXPECT_EQ(server->shutdowns, 1);
  EXPECT_EQ(scheduler.natives, 0);
}

TEST_F(StockSchedulerTest, ANativeWorkerThatRecognisesItDoesNotRegister) {
  scheduler.ShowItself();
  NativeNode* const native = job.AddNative(Role::kWorker, "10.0.0.3");
  native->Start();
  job.Run(seconds(1));
  EXPECT_THAT(native->refused.value().message(), HasSubstr("is MXNet's own, which native"));
  EXPECT_TRUE(scheduler.nodes.empty());
  EXPECT_EQ(scheduler.natives, 0);
}

TEST(OurScheduler, ControlOfAStockOneIsDropped) {
  Job job(5);
  job.options.num_workers = 1;
  NativeNode* const server = job.AddNative(Role::kServer, "10.0.0.7");
  StockNode* const worker = job.AddStock(Role::kWorker);
  job.StartAll();
  job.Run(seconds(2));
  bs::sim::SimExecutor executor(&job.clock);
  const std::unique_ptr<Transport> liar = job.network.MakeTransport(&executor);
  server->JoinFinalBarrier();
  executor.Post([&] {
    liar->Start({});
    liar->Connect(ServerId(0), {"10.0.0.7", 4711}, kSchedulerId);
    Message barrier;
    barrier.peer = ServerId(0);
    barrier.meta.is_control = true;
    barrier.meta.control.command = Command::kBarrier;
    liar->Send(std::move(barrier));
  });
  job.Run(seconds(2));
  EXPECT_EQ(server->shutdowns, 0);
  EXPECT_TRUE(job.Logged("control of a stock scheduler node, and ours is none"));
  EXPECT_EQ(worker->barrier_answers, 1);
  executor.Post([&] { liar->Close(bs::Duration(0)); });
  job.Run(seconds(1));
}

}  // namespace
}  // namespace ps::test
