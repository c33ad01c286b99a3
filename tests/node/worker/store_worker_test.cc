// Workers over a store through the C API, on a store with one worker, and their errors when that
// store is silent.
#include "node/worker/store_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/kvstore/store_scale.h"
#include "base/notification.h"
#include "base/status.h"
#include "bytescheduler/c_api.h"

namespace bs::test {
namespace {

using Floats = std::vector<float>;

// A store with one worker.  Its members are the engine's thread's until the worker is closed.
struct Store {
  std::map<int, Floats> values;
  std::vector<uint64_t> sizes;
  std::vector<int> priorities;  // of push-pulls
  std::vector<uint64_t> held;   // tokens of operations that do not end
  uint64_t held_bytes = 0;      // of those that push
  std::atomic<bool> silent = false;
  std::atomic<bool> blocks = false;  // the next call
  Notification let_go, over;         // of that call
  std::atomic<int> slow_ms = 0;      // that large pulls take
};

void Begin(void* context, bs_worker* worker, const bs_store_request* request) {
  auto* const store = static_cast<Store*>(context);
  const bool blocked = store->blocks.exchange(false);
  if (blocked) store->let_go.Wait();
  if (store->silent) {
    if (request->in != nullptr) store->held_bytes += request->size_bytes;
    return store->held.push_back(request->token);
  }
  if (request->what == 1 && request->size_bytes >= backend::kLeastSampleBytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(store->slow_ms.load()));
  }
  store->sizes.push_back(request->size_bytes);
  if (request->what == 2) store->priorities.push_back(request->priority);
  Floats& value = store->values[request->store_key];
  value.resize(request->size_bytes / sizeof(float));
  if (request->in != nullptr) std::memcpy(value.data(), request->in, request->size_bytes);
  bs_store_done(worker, request->token, 0, "", request->what == 0 ? nullptr : value.data());
  if (blocked) store->over.Notify();
}

constexpr uint64_t kCreditBytes = 384;  // for each of two servers

class StoreWorkerTest : public testing::Test {
 protected:
  // A worker whose store owes answers is left behind on purpose, which is no leak.
  ~StoreWorkerTest() override {
    static auto* const left_behind = new std::vector<bs_worker*>;
    left_behind->push_back(worker_);
  }
  // An empty credit is none.
  int Start(int rank, const char* timeout, const char* straggler_timeout, bs_error* error,
            const char* bound = "33", const char* credit = "384") {
    const std::vector<bs_setting> settings = {
        {"DMLC_ROLE", "worker"},
        {"DMLC_NUM_WORKER", "1"},
        {"DMLC_NUM_SERVER", "2"},
        {"DMLC_PS_ROOT_URI", "127.0.0.1"},
        {"DMLC_PS_ROOT_PORT", "1"},
        {"MXNET_KVSTORE_BIGARRAY_BOUND", bound},
        {"BYTESCHEDULER_LOG_LEVEL", "off"},
        {"BYTESCHEDULER_CREDIT", credit},
        {"BYTESCHEDULER_PRIORITY", "measured"},
        {"BYTESCHEDULER_TIMEOUT", timeout},
        {"BYTESCHEDULER_STRAGGLER_TIMEOUT", straggler_timeout}};
    return bs_worker_start_kvstore(settings.data(), settings.size(), rank, blocks_, Begin, &store_,
                                   &worker_, error);
  }
  void StartWell(const char* straggler_timeout = "20s") {
    bs_error error{};
    ASSERT_EQ(Start(0, "20s", straggler_timeout, &error), 0) << error.message;
    ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
    ASSERT_EQ(error.code, 0) << error.message;
  }
  static bs_error Await(bs_waiter* waiter) {
    bs_error error{};
    EXPECT_EQ(bs_waiter_wait(waiter, 20'000, &error), 1);
    bs_waiter_free(waiter);
    return error;
  }
  static bs_operation Make(bs_operation_kind kind, uint64_t key, Floats* out, bs_waiter* waiter) {
    bs_operation operation = bs_operation_init(kind);
    operation.key = key;
    operation.out = out->data();
    operation.size_bytes = out->size() * sizeof(float);
    operation.done = bs_waiter_done;
    operation.context = waiter;
    return operation;
  }
  void Broadcast(Floats* value, uint64_t key = 7) {
    bs_waiter* const waiter = bs_waiter_new(1);
    const bs_operation operation = Make(BS_BROADCAST, key, value, waiter);
    ASSERT_EQ(bs_worker_start_operation(worker_, &operation, nullptr), 0);
    ASSERT_EQ(Await(waiter).code, 0);
  }
  bs_waiter* PushPull(const Floats& in, Floats* out) { return PushPull(7, 1, 0, in, out); }
  bs_waiter* PushPull(uint64_t key, int priority, uint64_t called, const Floats& in, Floats* out) {
    bs_waiter* const waiter = bs_waiter_new(2);
    bs_operation operation = Make(BS_PUSH_PULL, key, out, waiter);
    operation.in = in.data();
    operation.pushed = bs_waiter_done;
    operation.priority = priority;
    operation.called = called;
    EXPECT_EQ(bs_worker_start_operation(worker_, &operation, nullptr), 0);
    return waiter;
  }

  int blocks_ = 0;
  Store store_;
  bs_worker* worker_ = nullptr;
};

TEST_F(StoreWorkerTest, BroadcastsSumsMeetsAndEnds) {
  StartWell();
  bs_view view{};
  view.size = sizeof(view);
  int host = 0;
  EXPECT_EQ(bs_worker_view(worker_, &view, &host, 1, nullptr), 0);
  EXPECT_EQ(view.rank, 0);
  EXPECT_EQ(view.num_workers, 1);
  EXPECT_EQ(view.num_servers, 2);
  EXPECT_EQ(host, -1) << "a store does not tell where workers run";
  Floats value(1000, 3);
  Broadcast(&value);
  Floats out(1000);
  EXPECT_EQ(Await(PushPull(Floats(1000, 4), &out)).code, 0);
  EXPECT_EQ(out, Floats(1000, 4));
  EXPECT_EQ(bs_worker_barrier(worker_, nullptr), 0);
  bs_error error{};
  EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
  // MXNet would share out arrays of 33 elements and more among its servers.
  for (const uint64_t size : store_.sizes) EXPECT_LE(size, 32 * sizeof(float));
}

TEST_F(StoreWorkerTest, RefusesACodedRoundAndGoesOn) {
  StartWell();
  Floats value(10, 3);
  Broadcast(&value);
  Floats out(10);
  bs_operation operation = Make(BS_PUSH_PULL, 7, &out, nullptr);
  operation.in = value.data();
  operation.pushed = bs_waiter_done;
  bs_error error{};
  ASSERT_EQ(bs_coding_parse("2bit", nullptr, 0, &operation.coding, &error), 0) << error.message;
  EXPECT_EQ(bs_worker_start_operation(worker_, &operation, &error), 5);
  EXPECT_STREQ(error.message,
               "gradient compression: stock servers know nothing of it; start the job with "
               "bslaunch");
  EXPECT_EQ(Await(PushPull(Floats(10, 4), &out)).code, 0);
  EXPECT_EQ(out, Floats(10, 4));
  EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
}

TEST_F(StoreWorkerTest, TellsMetricsAsOtherWorkersDo) {
  StartWell();
  Floats value(1000, 3);
  Broadcast(&value);
  Floats out(1000);
  ASSERT_EQ(Await(PushPull(Floats(1000, 4), &out)).code, 0);
  std::map<std::pair<std::string, int>, double> told;
  const auto add = [](void* context, const char* name, int of, double number) {
    (*static_cast<decltype(told)*>(context))[{name, of}] = number;
  };
  bs_error error{};
  ASSERT_EQ(bs_worker_measure(worker_, 20'000, add, &told, &error), 0) << error.message;
  EXPECT_EQ(told.at({"steps_total", -1}), 1);
  EXPECT_EQ(told.at({"failed", -1}), 0);
  const double pulled = told.at({"pulled_bytes_total", 0}) + told.at({"pulled_bytes_total", 1});
  EXPECT_EQ(pulled, 4000);
  EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
}

TEST_F(StoreWorkerTest, MeasuresWithTheLargestArrayUnlessTheUserSetsThePartitionSize) {
  struct Case {
    const char* bound;
    const char* credit;
    uint64_t largest;
  };
  for (const Case& one : {Case{"1000000", "", backend::kSampleBytes}, Case{"20001", "", 80000},
                          Case{"1000", "", sizeof(float)}, Case{"1000000", "384", sizeof(float)}}) {
    store_.sizes.clear();
    bs_error error{};
    ASSERT_EQ(Start(0, "20s", "20s", &error, one.bound, one.credit), 0) << error.message;
    ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
    EXPECT_EQ(std::ranges::max(store_.sizes), one.largest) << one.bound << " " << one.credit;
    EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
  }
}

// This store answers at once, so what is measured is as fast as can be.
TEST_F(StoreWorkerTest, PartitionsGrowOnAFastLinkUpToTheBoundUnlessTheUserHasSaidHowLargeTheyAre) {
  struct Case {
    const char* bound;
    const char* credit;
    uint64_t least;
    uint64_t most;
  };
  constexpr uint64_t kPartition = uint64_t{128} << 10U;
  for (const Case& one :
       {Case{"1000000", "", kPartition + 1, 3'999'995}, Case{"20001", "", 79'000, 80'000},
        Case{"1000000", "384", kPartition - 64, kPartition}}) {
    bs_error error{};
    ASSERT_EQ(Start(0, "20s", "20s", &error, one.bound, one.credit), 0) << error.message;
    ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
    store_.sizes.clear();  // of what it has measured with
    Floats value(size_t{1} << 20U, 3);
    Broadcast(&value);
    const uint64_t largest = std::ranges::max(store_.sizes);
    EXPECT_GE(largest, one.least) << one.bound << " " << one.credit;
    EXPECT_LE(largest, one.most) << one.bound << " " << one.credit;
    EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
  }
}

TEST_F(StoreWorkerTest, PartitionsShrinkOnASlowLinkUnlessTheUserHasSaidHowLargeTheyAre) {
  constexpr uint64_t kLeast = uint64_t{32} << 10U;
  store_.slow_ms = 45;  // a megabyte: 0.19 Gbit/s at most
  for (const auto& [credit, largest] : {std::pair{"", kLeast}, std::pair{"384", 4 * kLeast}}) {
    bs_error error{};
    ASSERT_EQ(Start(0, "20s", "20s", &error, "1000000", credit), 0) << error.message;
    ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
    store_.sizes.clear();  // of what it has measured with
    Floats value(size_t{1} << 18U, 3);
    Broadcast(&value);
    EXPECT_EQ(std::ranges::max(store_.sizes), largest) << credit;
    EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
  }
}

TEST_F(StoreWorkerTest, StoreIsToldTheMeasuredPriorities) {
  bs_error error{};
  ASSERT_EQ(Start(0, "20s", "20s", &error, "1000000"), 0) << error.message;  // one partition each
  ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
  Floats value(5000, 3);  // more bytes than a small tensor
  // Even ones, whose only partition goes by priority.
  for (const uint64_t key : {2, 4, 6}) Broadcast(&value, key);
  Floats out(5000);
  uint64_t called = 0;
  bs_waiter* const never = bs_waiter_new(1);
  for (int step = 0; step < 6; ++step) {
    store_.priorities.clear();
    for (const uint64_t number : {2, 1, 3}) {
      const uint64_t key = 2 * number;
      const int priority = -static_cast<int>(number);
      const uint64_t turn = number == 3 ? 1 : number + 1;
      EXPECT_EQ(bs_waiter_wait(never, 1, nullptr), 0);  // not in the same moment as the one before
      EXPECT_EQ(Await(PushPull(key, priority, called + turn, value, &out)).code, 0);
    }
    called += 3;
  }
  bs_waiter_free(never);
  // The last to be ready has the largest, the first the smallest.
  EXPECT_EQ(store_.priorities, (std::vector{-3, -2, -1}));
  EXPECT_EQ(bs_worker_close(worker_, 20'000, nullptr), 0);
}

TEST_F(StoreWorkerTest, IsLeftBehindByOperationsThatDoNotEndAndTheyMayEndLater) {
  StartWell();
  Floats value(16, 3);
  Broadcast(&value);
  store_.silent = true;
  Floats out(16);
  bs_waiter* const waiter = PushPull(value, &out);
  bs_error error{};
  EXPECT_EQ(bs_worker_close(worker_, 50, &error), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_STREQ(error.message, "operations on the wrapped store have not ended");
  EXPECT_EQ(Await(waiter).code, static_cast<int>(StatusCode::kCancelled));
  ASSERT_FALSE(store_.held.empty());
  for (const uint64_t token : store_.held) bs_store_done(worker_, token, 4, "late", nullptr);
}

TEST_F(StoreWorkerTest, CreditCountsBytesThatTheWrappedStoreHasNotAnswered) {
  StartWell();
  Floats value(1000, 3);  // many pieces, whose size divides the credit
  Broadcast(&value);
  store_.silent = true;
  Floats out(1000);
  bs_waiter* const waiter = PushPull(value, &out);
  bs_error error{};
  // Whatever it has begun, it has begun before it notices that it is to end.
  EXPECT_EQ(bs_worker_close(worker_, 50, &error), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(Await(waiter).code, static_cast<int>(StatusCode::kCancelled));
  EXPECT_EQ(store_.held_bytes, 2 * kCreditBytes);
  for (const uint64_t token : store_.held) bs_store_done(worker_, token, 4, "late", nullptr);
}

TEST_F(StoreWorkerTest, CallsThatMayBlockSumTheSame) {
  blocks_ = 1;
  StartWell();
  Floats value(1000, 3);
  Broadcast(&value);
  Floats out(1000);
  for (int round = 1; round <= 20; ++round) {
    EXPECT_EQ(Await(PushPull(Floats(1000, static_cast<float>(round)), &out)).code, 0);
    EXPECT_EQ(out, Floats(1000, static_cast<float>(round)));
  }
  bs_error error{};
  EXPECT_EQ(bs_worker_close(worker_, 20'000, &error), 0) << error.message;
}

TEST_F(StoreWorkerTest, ACallThatBlocksHoldsNoDeadlineUp) {
  blocks_ = 1;
  StartWell("2s");
  Floats value(4, 3);  // so few that no probe goes behind
  Broadcast(&value);
  store_.blocks = true;
  Floats out(4);
  const bs_error error = Await(PushPull(value, &out));
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_NE(std::string(error.message).find("still waiting for the push of another worker"),
            std::string::npos)
      << error.message;
  EXPECT_EQ(bs_worker_close(worker_, 0, nullptr), static_cast<int>(StatusCode::kUnavailable));
  store_.let_go.Notify();
  store_.over.Wait();
}

TEST_F(StoreWorkerTest, ASilentStoreIsAnErrorAtTheStart) {
  store_.silent = true;
  bs_error error{};
  ASSERT_EQ(Start(0, "100ms", "20s", &error), 0);
  ASSERT_EQ(bs_worker_ready(worker_, 20'000, &error), 1);
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_NE(std::string(error.message).find("BYTESCHEDULER_TIMEOUT"), std::string::npos);
  static_cast<void>(bs_worker_close(worker_, 0, nullptr));
}

TEST_F(StoreWorkerTest, ASilentStoreIsAnErrorAtABarrier) {
  StartWell("2s");
  store_.silent = true;
  bs_error error{};
  EXPECT_EQ(bs_worker_barrier(worker_, &error), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_STREQ(error.message,
               "barrier: after 2 s not every worker has come, or a server is gone: look which "
               "process of the job has ended (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
  EXPECT_EQ(bs_worker_status(worker_, &error), static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(bs_worker_barrier(worker_, nullptr), static_cast<int>(StatusCode::kDeadlineExceeded));
  static_cast<void>(bs_worker_close(worker_, 0, nullptr));
}

TEST_F(StoreWorkerTest, AWorkerThatGivesUpSaysWhyAtEveryCall) {
  StartWell();
  EXPECT_EQ(bs_worker_fail(worker_, "no more"), 0);
  bs_error error{};
  EXPECT_EQ(bs_worker_status(worker_, &error), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_STREQ(error.message, "worker 0 gave up: no more");
  EXPECT_EQ(bs_worker_barrier(worker_, nullptr), static_cast<int>(StatusCode::kUnavailable));
  EXPECT_EQ(bs_worker_close(worker_, 0, nullptr), 0);
}

TEST_F(StoreWorkerTest, ARankThatIsNoneIsRefused) {
  bs_error error{};
  EXPECT_EQ(Start(1, "20s", "20s", &error), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_STREQ(error.message, "rank 1 of 1 worker");
}

}  // namespace
}  // namespace bs::test
