// Servers whose hosting process makes the updates, through the C API and real sockets.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/notification.h"
#include "base/status.h"
#include "bytescheduler/c_api.h"
#include "capi/job.h"

namespace bs::test {
namespace {

// A hosting process that adds gradients times the learning rate, if there is one.
struct Host {
  std::atomic<int> loads = 0;
  std::atomic<int> updates = 0;
  std::atomic<std::thread::id> thread;            // of all calls
  std::atomic<Notification*> blocked = nullptr;   // told when an update has begun
  std::atomic<Notification*> released = nullptr;  // what that update waits for
  std::string about;  // of the latest update; to be read once the server is closed
};

int Say(bs_error* error, int code, const char* text) {
  std::strcpy(error->message, text);
  return code;
}

int OnOptimizer(void* context, const void* pickle, uint64_t size_bytes, bs_error* error) {
  auto* const host = static_cast<Host*>(context);
  ++host->loads;
  host->thread = std::this_thread::get_id();
  const std::string_view text(static_cast<const char*>(pickle), size_bytes);
  return text == "bad" ? Say(error, 10, "it names os.system") : 0;
}

int OnUpdate(void* context, const bs_server_update* update, bs_error* error) {
  auto* const host = static_cast<Host*>(context);
  EXPECT_EQ(host->thread.load(), std::this_thread::get_id());
  EXPECT_EQ(update->dtype, 0);
  host->about = update->about;
  if (Notification* const blocked = host->blocked) blocked->Notify();
  if (Notification* const released = host->released) released->WaitFor(std::chrono::seconds(60));
  const size_t count = update->size_bytes / sizeof(float);
  Floats gradient(count);
  std::memcpy(gradient.data(), update->gradient, update->size_bytes);
  auto* const weights = static_cast<float*>(update->weights);
  const double rate = update->learning_rate == nullptr ? 1 : *update->learning_rate;
  for (size_t i = 0; i < count; ++i) weights[i] += static_cast<float>(rate) * gradient[i];
  ++host->updates;
  return gradient[0] < 0 ? Say(error, 1, "ValueError: it is negative") : 0;
}

// A job of one worker whose server is hosted.
class HostedJob {
 public:
  HostedJob() {
    job_.StartScheduler();
    const std::vector<bs_setting> rows = job_.Rows("server");
    const bs_server_updater updater{&host_, OnOptimizer, OnUpdate};
    bs_node* node = nullptr;
    bs_error error{};
    EXPECT_EQ(bs_node_start_updating(rows.data(), rows.size(), &updater, &node, &error), 0);
    server_.reset(node);
    worker_ = job_.StartWorker();
    EXPECT_EQ(bs_worker_ready(worker_.get(), kPatienceMs, &error), 1);
    EXPECT_EQ(error.code, 0) << error.message;
  }

  bs_error SetOptimizer(const std::string& text, const std::string& pickle) {
    const WaiterPtr waiter(bs_waiter_new(1));
    bs_operation operation = bs_operation_init(BS_SET_OPTIMIZER);
    operation.optimizer = text.c_str();
    operation.pickle = pickle.data();
    operation.pickle_bytes = pickle.size();
    operation.done = bs_waiter_done;
    operation.context = waiter.get();
    EXPECT_EQ(bs_worker_start_operation(worker_.get(), &operation, nullptr), 0);
    return Await(waiter.get());
  }
  bs_error Broadcast(uint64_t key, Floats* value) {
    const WaiterPtr waiter(bs_waiter_new(1));
    bs_operation operation = MakeBroadcast(BS_BROADCAST_WHOLE, key, value, waiter.get());
    operation.about = "what it is";
    EXPECT_EQ(bs_worker_start_operation(worker_.get(), &operation, nullptr), 0);
    return Await(waiter.get());
  }
  void Begin(uint64_t key, const Floats& in, Floats* out, bs_waiter* waiter,
             const bs_rates* rates) {
    bs_operation operation = MakePushPull(key, in, out, waiter);
    operation.kind = BS_UPDATE;
    operation.rates = rates;
    ASSERT_EQ(bs_worker_start_operation(worker_.get(), &operation, nullptr), 0);
  }
  bs_error Update(uint64_t key, const Floats& in, Floats* out, const bs_rates* rates = nullptr) {
    const WaiterPtr waiter(bs_waiter_new(2));
    Begin(key, in, out, waiter.get(), rates);
    return Await(waiter.get());
  }
  Host& host() { return host_; }
  void CloseServer() { server_.reset(); }

 private:
  Host host_;  // outlives the server
  Job job_{1, 1, {{"BYTESCHEDULER_PARTITION", "4KiB"}}};
  NodePtr server_;
  WorkerPtr worker_;
};

constexpr size_t kSize = 3000;  // would be several partitions

TEST(CApiUpdater, UpdatesWholeKeysOnAThreadOfItsOwn) {
  HostedJob job;
  bs_error error = job.SetOptimizer("hosted adder", "good");
  ASSERT_EQ(error.code, 0) << error.message;
  Floats value(kSize, 1);
  ASSERT_EQ(job.Broadcast(7, &value).code, 0);
  Floats out(kSize);
  ASSERT_EQ(job.Update(7, Floats(kSize, 2), &out).code, 0);
  EXPECT_EQ(out, Floats(kSize, 3));
  const bs_rates rates{.learning_rate = 10, .weight_decay = 0, .rescale_grad = 1};
  error = job.Update(7, Floats(kSize, 1), &out, &rates);
  ASSERT_EQ(error.code, 0) << error.message;
  EXPECT_EQ(out, Floats(kSize, 13));
  job.CloseServer();
  EXPECT_EQ(job.host().about, "what it is");
  EXPECT_EQ(job.host().loads, 1);
  EXPECT_EQ(job.host().updates, 2) << "one for each push, not for each partition";
  EXPECT_NE(job.host().thread.load(), std::this_thread::get_id());
}

TEST(CApiUpdater, ARefusalConcernsTheCallAndAFailureTheJob) {
  HostedJob job;
  const bs_error refused = job.SetOptimizer("hosted adder", "bad");
  EXPECT_EQ(refused.code, static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_NE(std::strstr(refused.message, "it names os.system"), nullptr) << refused.message;
  ASSERT_EQ(job.SetOptimizer("hosted adder", "good").code, 0);
  Floats value(kSize, 1);
  ASSERT_EQ(job.Broadcast(7, &value).code, 0);
  Floats out(kSize);
  const bs_error failed = job.Update(7, Floats(kSize, -1), &out);
  EXPECT_EQ(failed.code, static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_NE(std::strstr(failed.message,
                        "push key=7 push_count=1 partition=0 from worker 0: the optimizer on the "
                        "server: ValueError: it is negative"),
            nullptr)
      << failed.message;
}

TEST(CApiUpdater, AServerThatClosesWaitsForTheCallThatRuns) {
  HostedJob job;
  ASSERT_EQ(job.SetOptimizer("hosted adder", "good").code, 0);
  Floats value(kSize, 1);
  Notification begun;
  Notification released;
  for (const uint64_t key : {7, 8}) ASSERT_EQ(job.Broadcast(key, &value).code, 0);
  job.host().blocked = &begun;
  job.host().released = &released;
  const Floats in(kSize, 1);
  Floats out(kSize);
  const WaiterPtr waiter(bs_waiter_new(4));
  for (const uint64_t key : {7, 8}) {
    Floats* const into = key == 7 ? &out : &value;
    job.Begin(key, in, into, waiter.get(), nullptr);
  }
  ASSERT_TRUE(begun.WaitFor(std::chrono::seconds(60)));
  std::thread closer([&] { job.CloseServer(); });
  // The worker hears of the end while the update still runs.
  const bs_error error = Await(waiter.get());
  EXPECT_NE(error.code, 0);
  EXPECT_EQ(job.host().updates, 0);
  released.Notify();
  closer.join();
  EXPECT_LE(job.host().updates, 2);
  EXPECT_GE(job.host().updates, 1);
}

}  // namespace
}  // namespace bs::test
