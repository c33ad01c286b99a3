// A server whose threads end while the hosting process still works for it.
#include "node/server_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "base/numa.h"
#include "base/run_on.h"
#include "node/patience.h"
#include "protocol/bodies.h"
#include "server/server.h"
#include "server/stock/stock_support.h"
#include "sim/sim_executor.h"

namespace bs::node {
namespace {

// Calls a function when it goes.
class AtTheEnd {
 public:
  explicit AtTheEnd(Task task) : task_(std::move(task)) {}
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  ~AtTheEnd() { task_(); }

 private:
  const Task task_;
};

// A server for one worker, with two shards.  The test's own thread is its dispatcher's.
class ServerThreadsTest : public testing::Test {
 protected:
  ServerThreadsTest() {
    const int core = DiscoverNumaNodes().front().cores.front();
    const std::vector<ShardPlace> places{{.index = 0, .core = core}, {.index = 1, .core = core}};
    shards_ = threads_.StartShards(places);
    ServerOptions options;
    options.updater = {.executor = threads_.StartUpdater(),
                       .set_optimizer = [this](std::string_view) { return set_optimizer_(); },
                       .update = [this](const ServerUpdate&) { return update_(); }};
    updater_ = options.updater.executor;
    server_.emplace(options, &dispatcher_, shards_,
                    Server::Handler{.send = [this](ps::Message message) { on_send_(message); }},
                    Logger("", LogLevel::kOff));
  }

  // A call of the hosting process, which returns when the threads begin to end.
  Status CallUntilTheEnd() {
    ++num_calls_;
    called_.Notify();
    return may_return_.WaitFor(kPatience) ? Status::Ok() : Status::DeadlineExceeded("the end");
  }
  void End() {
    server_->Fail(Status::Cancelled("the server was closed"));
    may_return_.Notify();
    threads_.End();
    RunDispatcher();
  }
  void RunDispatcher() { clock_.RunUntil(clock_.Now() + std::chrono::seconds(1)); }

  ServerThreads threads_;
  sim::SimClock clock_{1};
  sim::SimExecutor dispatcher_{&clock_};
  std::vector<ServerShard> shards_;
  Executor* updater_ = nullptr;
  std::function<void(const ps::Message&)> on_send_ = [](const ps::Message&) {};
  std::function<Status()> set_optimizer_ = [] { return Status::Ok(); };
  std::function<Status()> update_ = [this] { return CallUntilTheEnd(); };
  int num_calls_ = 0;  // that last until the end; on the updater's thread
  Notification called_;
  Notification may_return_;
  std::optional<Server> server_;
};

TEST_F(ServerThreadsTest, AnOptimizerMayBeLoadedWhileTheyEnd) {
  std::vector<StatusCode> answers;
  on_send_ = [&](const ps::Message& answer) { answers.push_back(server::CodeOf(answer)); };
  set_optimizer_ = [this] { return CallUntilTheEnd(); };
  ps::Message request = server::MakeRequest({.op = ps::Op::kOptimizer, .round = 1});
  test::ChangeRequest(&request, [](auto* body) { body->optimizer = "hosted Own"; });
  request.data.push_back(ps::Frame::Copy("pickle"));
  server_->OnMessage(std::move(request));
  ASSERT_TRUE(called_.WaitFor(kPatience));
  End();  // the dispatcher hands the loaded optimizer to the shards
  EXPECT_EQ(num_calls_, 1);
  EXPECT_EQ(answers, std::vector{StatusCode::kCancelled});
}

// Two pushes of a stock worker are on the second shard.  This shard asks for the second update when
// it knows the outcome of the first, and the updater has ended before.
TEST_F(ServerThreadsTest, AShardMayAskForAnUpdateWhileTheyEnd) {
  ps::Message optimizer;
  optimizer.peer = ps::WorkerId(0);
  optimizer.meta.request = true;
  optimizer.meta.simple_app = true;
  optimizer.meta.head = 0;
  server_->OnMessage(std::move(optimizer));
  RunOn(updater_, [] {});
  RunDispatcher();
  for (const uint64_t key : {1u, 2u, 2u, 2u}) {  // each key lies on a shard of its own
    server::StockAsk push = server::StockPush(0, server::Floats({1}));
    push.keys = {key};
    server_->OnMessage(server::StockRequest(push));
  }
  ASSERT_TRUE(called_.WaitFor(kPatience));
  threads_.AwaitShards();
  Notification answers;
  Notification updater_ended;
  on_send_ = [&](const ps::Message&) {
    if (!shards_[1].executor->IsCurrent()) return;
    answers.Notify();
    EXPECT_TRUE(updater_ended.WaitFor(kPatience));
  };
  auto end_of_first_shard = std::make_unique<AtTheEnd>([&] {
    EXPECT_TRUE(answers.WaitFor(kPatience));
    updater_ended.Notify();
  });
  shards_[0].executor->PostAt(LoopThread::SteadyTime() + std::chrono::hours(1),
                              [end = std::move(end_of_first_shard)] {});
  End();
  EXPECT_EQ(num_calls_, 1);
}

}  // namespace
}  // namespace bs::node
