// Workers over a stock store: sums, order, credit without deadlock, deadlines, failures, the end.
#include "backend/kvstore/kvstore_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "backend/kvstore/stock_store.h"
#include "worker/worker.h"

namespace bs::backend {
namespace {

using testing::HasSubstr;
using What = StoreRequest::What;

constexpr uint64_t kPart = 64;  // bytes of a partition
constexpr size_t kPartFloats = kPart / sizeof(float);

WorkerOptions Options(const job::SharedView& view) {
  WorkerOptions options;
  options.view = view;
  options.partition_bytes = kPart;
  options.credit_bytes = kPart;
  options.small_tensor_bytes = 0;
  return options;
}

class CreditWithTheSum final : public protocol::Rules {
  bool credit_returns_with_the_push() const override { return false; }
};

// One process of the job.
struct Node {
  Node(sim::SimClock* clock, StockStore* store, const WorkerOptions& options,
       KvstoreBackend::Options carries, const protocol::Rules& rules)
      : executor(clock),
        backend(WithScale(std::move(carries), options.view), &executor,
                store->For(static_cast<uint32_t>(options.view->own.rank), &executor),
                Logger("", LogLevel::kOff)),
        worker(
            options, &executor, &backend, [this](const Status& why) { failure = why; },
            Logger("", LogLevel::kOff), rules) {}

  KvstoreBackend::Options WithScale(KvstoreBackend::Options carries, job::SharedView view) {
    carries.view = std::move(view);
    carries.straggler_timeout = std::chrono::seconds(30);
    carries.on_scale = [this](uint32_t measured) {
      scale = measured;
      const uint64_t bytes = kPart * measured / kUsualScale;
      worker.SetPartitionAndCredit(bytes, bytes);
    };
    return carries;
  }

  sim::SimExecutor executor;
  Status failure;
  uint32_t scale = 0;
  KvstoreBackend backend;
  Worker worker;
};

struct Sum {
  explicit Sum(size_t floats, float value) : in(floats, value), out(floats, -1) {}
  std::vector<float> in, out;
  std::optional<Status> pushed, pulled;
};

class KvstoreBackendTest : public testing::Test {
 protected:
  void Start(uint64_t seed, uint32_t num_workers, uint32_t num_servers, uint64_t sample_bytes = 0,
             uint64_t small_bytes = 0, const protocol::Rules& rules = protocol::Rules()) {
    clock_ = std::make_unique<sim::SimClock>(seed);
    store_ = std::make_unique<StockStore>(clock_.get(), num_workers, num_servers);
    for (uint32_t rank = 0; rank < num_workers; ++rank) {
      nodes_.push_back(std::make_unique<Node>(
          clock_.get(), store_.get(),
          Options(job::ShareView({.rank = static_cast<int32_t>(rank)},
                                 static_cast<int32_t>(num_workers),
                                 static_cast<int32_t>(num_servers))),
          KvstoreBackend::Options{.sample_bytes = sample_bytes, .small_bytes = small_bytes},
          rules));
    }
    for (const auto& node : nodes_) {
      std::optional<Status> prepared;
      node->executor.Post([&] { node->backend.Prepare([&](const Status& s) { prepared = s; }); });
      RunFor(std::chrono::milliseconds(10));
      EXPECT_TRUE(prepared && prepared->ok());
    }
  }
  // Ends everything; what the store still holds is dropped.
  void End() {
    int closed = 0;
    for (const auto& node : nodes_) node->worker.Close([&] { ++closed; });
    RunFor(std::chrono::milliseconds(10));
    EXPECT_EQ(closed, static_cast<int>(nodes_.size()));
    store_.reset();
    nodes_.clear();
    clock_.reset();
    sums_.clear();
  }
  void TearDown() override {
    if (clock_) End();
  }
  void RunFor(Duration time) { clock_->RunUntil(clock_->Now() + time); }
  Status Broadcast(uint32_t rank, Key key, std::span<float> value) {
    std::optional<Status> status;
    nodes_[rank]->worker.Broadcast(key, DType::kFloat32, std::as_writable_bytes(value),
                                   [&](Status s) { status = std::move(s); });
    RunFor(std::chrono::milliseconds(10));
    return status.value_or(Status::Internal("the broadcast did not end"));
  }
  void BroadcastAll(Key key, size_t floats) {
    std::vector<float> value(floats, 5);
    for (uint32_t rank = 0; rank < nodes_.size(); ++rank) {
      EXPECT_EQ(Broadcast(rank, key, value).ToString(), "ok");
      EXPECT_EQ(value, std::vector<float>(floats, 5));
      value.assign(floats, 0);
    }
  }
  Sum* PushPull(uint32_t rank, Key key, Priority priority, size_t floats, float value) {
    Sum* const sum = &sums_.emplace_back(floats, value);
    nodes_[rank]->worker.PushPull(
        key, {.priority = priority}, std::as_bytes(std::span<const float>(sum->in)),
        std::as_writable_bytes(std::span(sum->out)),
        [sum](Status s) { sum->pushed = std::move(s); },
        [sum](Status s) { sum->pulled = std::move(s); });
    return sum;
  }
  size_t Begun(What what) const {
    size_t count = 0;
    for (const StoreRequest& request : store_->begun) count += request.what == what ? 1 : 0;
    return count;
  }

  std::unique_ptr<sim::SimClock> clock_;
  std::unique_ptr<StockStore> store_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<Sum> sums_;
};

TEST_F(KvstoreBackendTest, SumsOfManyRoundsAreRightWhateverTheOrderAndTheDelays) {
  constexpr size_t kFloats = 5 * kPartFloats + 3;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Start(seed, 3, 2);
    for (const Key key : {7U, 8U, 9U}) BroadcastAll(key, kFloats);
    std::vector<std::pair<Sum*, float>> expected;
    for (float round = 1; round < 4; ++round) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        for (uint64_t i = 0; i < 3; ++i) {
          const Key key = 7 + (i + rank) % 3;  // each starts elsewhere
          const float value = round * static_cast<float>(key);
          const auto priority = static_cast<Priority>(clock_->Uniform(0, 3));
          expected.emplace_back(PushPull(rank, key, priority, kFloats, value), 3 * value);
        }
      }
    }
    RunFor(std::chrono::seconds(1));
    for (const auto& [sum, value] : expected) {
      ASSERT_TRUE(sum->pulled && sum->pulled->ok());
      ASSERT_TRUE(sum->pushed && sum->pushed->ok());
      ASSERT_EQ(sum->out, std::vector<float>(kFloats, value));
    }
    End();
  }
}

// Each worker's credit is one partition, and each spends it on the other key first.
TEST_F(KvstoreBackendTest, OppositeOrdersDoNotWaitForEachOther) {
  Start(1, 2, 1);
  for (const Key key : {1U, 2U}) BroadcastAll(key, 4 * kPartFloats);
  std::vector<Sum*> sums;
  for (const uint32_t rank : {0U, 1U}) {
    for (const Key key : {1U + rank, 2U - rank}) {
      sums.push_back(PushPull(rank, key, 0, 4 * kPartFloats, 1));
    }
  }
  RunFor(std::chrono::seconds(1));
  for (const Sum* sum : sums) EXPECT_TRUE(sum->pulled && sum->pulled->ok());
}

// The test of the test: were it the sum that gives credit back, they would.
TEST_F(KvstoreBackendTest, WithoutProbesOppositeOrdersWouldWaitForEver) {
  Start(1, 2, 1, /*sample_bytes=*/0, /*small_bytes=*/0, CreditWithTheSum());
  for (const Key key : {1U, 2U}) BroadcastAll(key, 4 * kPartFloats);
  std::vector<Sum*> sums;
  for (const uint32_t rank : {0U, 1U}) {
    for (const Key key : {1U + rank, 2U - rank}) {
      sums.push_back(PushPull(rank, key, 0, 4 * kPartFloats, 1));
    }
  }
  RunFor(std::chrono::seconds(20));
  for (const Sum* sum : sums) EXPECT_FALSE(sum->pulled);
}

TEST_F(KvstoreBackendTest, NoMoreThanTheCreditIsOnTheLinkAndUrgentPartitionsGoFirst) {
  Start(1, 2, 1);
  for (const Key key : {1U, 2U}) BroadcastAll(key, 6 * kPartFloats);
  PushPull(0, 1, -1, 6 * kPartFloats, 1);
  PushPull(0, 2, 5, 6 * kPartFloats, 1);
  std::vector<Priority> order;
  size_t partitions = 0;
  size_t probes = 0;
  while (clock_->Step() && clock_->Now() < TimePoint(std::chrono::seconds(1))) {
    EXPECT_LE(nodes_[0]->worker.in_flight_bytes(0), kPart);
  }
  for (const StoreRequest& request : store_->begun) {
    if (request.what == What::kPushPull) {
      order.push_back(request.priority);
      EXPECT_EQ(partitions, probes)
          << "a partition was sent before the one before had crossed the link";
      ++partitions;
    } else if (partitions > 0) {
      ++probes;
    }
  }
  // All have left though the other worker pushed nothing; the first call was alone at first.
  ASSERT_EQ(order.size(), 12U);
  EXPECT_EQ(order, (std::vector<Priority>{5, 5, 5, 5, 5, 5, kEarlyPriority, kEarlyPriority,
                                          kEarlyPriority, -1, -1, -1}));
}

// Each worker's credit is one partition; sixteen small ones may go without a probe.
TEST_F(KvstoreBackendTest, SmallPartitionsGoBesideCreditUpToABoundAndThenAreProbed) {
  Start(1, 2, 1, /*sample_bytes=*/0, /*small_bytes=*/16 * kPart);
  constexpr size_t kKeys = 20;
  for (Key key = 0; key < kKeys; ++key) BroadcastAll(key, kPartFloats);
  const size_t probes = Begun(What::kPull);
  std::vector<Sum*> sums;
  for (Key key = 0; key < 16; ++key) sums.push_back(PushPull(0, key, 0, kPartFloats, 1));
  RunFor(std::chrono::milliseconds(100));
  EXPECT_EQ(Begun(What::kPushPull), 16U);
  EXPECT_EQ(Begun(What::kPull), probes) << "a small partition was probed";
  // The other worker has pushed none of them, so none has ended.
  for (Key key = 16; key < kKeys; ++key) sums.push_back(PushPull(0, key, 0, kPartFloats, 1));
  RunFor(std::chrono::milliseconds(100));
  EXPECT_EQ(Begun(What::kPushPull), kKeys);
  EXPECT_EQ(Begun(What::kPull), probes + 4);
  for (const Sum* sum : sums) EXPECT_TRUE(sum->pushed && sum->pushed->ok() && !sum->pulled);
  // In another order, which must not matter; what has ended makes room again.
  for (Key key = kKeys; key-- > 0;) sums.push_back(PushPull(1, key, 0, kPartFloats, 1));
  RunFor(std::chrono::milliseconds(100));
  for (const Sum* sum : sums) {
    ASSERT_TRUE(sum->pulled && sum->pulled->ok());
    EXPECT_EQ(sum->out, std::vector<float>(kPartFloats, 2));
  }
  const size_t before = Begun(What::kPull);
  PushPull(0, 3, 0, kPartFloats, 1);
  RunFor(std::chrono::milliseconds(100));
  EXPECT_EQ(Begun(What::kPull), before);
}

TEST_F(KvstoreBackendTest, PartitionsAndCreditOfAllWorkersAreAsRank0HasMeasured) {
  constexpr size_t kFloats = 8 * kPartFloats;
  for (const uint64_t sample_bytes : {uint64_t{0}, kLeastSampleBytes}) {
    // Pulls of the simulated store take next to no time.
    const uint32_t scale = sample_bytes == 0 ? kUsualScale : kLargestScale;
    Start(1, 2, 1, sample_bytes);
    EXPECT_EQ(nodes_[0]->scale, scale);
    EXPECT_EQ(nodes_[1]->scale, 0U) << "who has told it?";
    BroadcastAll(7, kFloats);
    EXPECT_EQ(nodes_[1]->scale, scale);
    std::vector<Sum*> sums;
    for (const uint32_t rank : {0U, 1U}) sums.push_back(PushPull(rank, 7, 0, kFloats, 1));
    RunFor(std::chrono::seconds(1));
    for (const Sum* sum : sums) EXPECT_EQ(sum->out, std::vector<float>(kFloats, 2));
    EXPECT_EQ(Begun(What::kPushPull), sample_bytes == 0 ? 16U : 2U);
    if (sample_bytes == 0) End();
  }
}

TEST_F(KvstoreBackendTest, TheLinkToEachServerIsMeasuredUpToEightServers) {
  for (const uint32_t num_servers : {3U, 20U}) {
    Start(1, 2, num_servers, kLeastSampleBytes);
    std::set<int64_t> measured;
    for (const StoreRequest& request : store_->begun) {
      if (request.size_bytes != kLeastSampleBytes || request.what != What::kPull) continue;
      measured.insert(int64_t{request.store_key} * 9973 % num_servers);
    }
    EXPECT_EQ(measured.size(), std::min(num_servers, 8U));
    if (num_servers == 3) End();
  }
}

TEST_F(KvstoreBackendTest, ASilentWorkerIsAnErrorThatNamesThePendingRequest) {
  Start(1, 2, 1);
  BroadcastAll(7, 2 * kPartFloats);
  const Sum* const sum = PushPull(0, 7, 0, 2 * kPartFloats, 1);
  RunFor(std::chrono::seconds(29));
  EXPECT_TRUE(sum->pushed && sum->pushed->ok());
  EXPECT_FALSE(sum->pulled);
  EXPECT_EQ(Begun(What::kPushPull), 2U) << "a repeat began an operation of its own";
  RunFor(std::chrono::seconds(2));
  ASSERT_TRUE(sum->pulled);
  EXPECT_EQ(sum->pulled->code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(sum->pulled->message(), HasSubstr("pull key=7 round=1 partition=0 to server 0"));
  EXPECT_THAT(sum->pulled->message(), HasSubstr("BYTESCHEDULER_STRAGGLER_TIMEOUT"));
  EXPECT_EQ(nodes_[0]->failure.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(KvstoreBackendTest, ADeadServerIsAnErrorToo) {
  Start(1, 2, 1);
  BroadcastAll(7, kPartFloats);
  store_->dead = true;
  const Sum* const sum = PushPull(0, 7, 0, kPartFloats, 1);
  RunFor(std::chrono::seconds(31));
  ASSERT_TRUE(sum->pushed && sum->pulled);
  EXPECT_EQ(sum->pushed->code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sum->pulled->code(), StatusCode::kDeadlineExceeded);
}

TEST_F(KvstoreBackendTest, ARefusalOfTheStoreFailsTheWorkerWithItsMessage) {
  Start(1, 1, 1);
  BroadcastAll(7, kPartFloats);
  store_->fails_what = What::kPushPull;
  store_->fails = Status::Internal("the store is full");
  const Sum* const sum = PushPull(0, 7, 0, kPartFloats, 1);
  RunFor(std::chrono::milliseconds(10));
  ASSERT_TRUE(sum->pulled);
  EXPECT_THAT(sum->pulled->message(), HasSubstr("the store is full"));
  EXPECT_EQ(nodes_[0]->failure.code(), StatusCode::kInternal);
}

TEST_F(KvstoreBackendTest, AProbeThatFailsLeavesTheCreditToThePartitionsOwnEnd) {
  Start(1, 1, 1);
  BroadcastAll(7, 4 * kPartFloats);
  store_->fails = Status::Internal("no pull today");
  const Sum* const sum = PushPull(0, 7, 0, 4 * kPartFloats, 1);
  RunFor(std::chrono::milliseconds(10));
  EXPECT_TRUE(sum->pulled && sum->pulled->ok());
}

TEST_F(KvstoreBackendTest, AnotherOrderOfBroadcastsIsFound) {
  Start(1, 2, 2);
  std::vector<float> value(kPartFloats, 1);
  EXPECT_TRUE(Broadcast(0, 7, value).ok());
  EXPECT_TRUE(Broadcast(0, 8, value).ok());
  const Status status = Broadcast(1, 8, value);
  EXPECT_THAT(status.message(), HasSubstr("this worker initialises key=8 of 64 bytes of dtype 0 "
                                          "where rank 0 initialises key=7 of 64 bytes"));
  // The next request asks the store for nothing: the key may have another size, or none.
  const size_t begun = store_->begun.size();
  EXPECT_FALSE(Broadcast(1, 7, value).ok());
  EXPECT_EQ(store_->begun.size(), begun);
}

TEST_F(KvstoreBackendTest, AnEmptyTensorNeedsNoStore) {
  Start(1, 2, 2);
  BroadcastAll(7, 0);
  const Sum* const sum = PushPull(0, 7, 0, 0, 1);
  RunFor(std::chrono::milliseconds(10));
  EXPECT_TRUE(sum->pulled && sum->pulled->ok());
  EXPECT_EQ(Begun(What::kPushPull), 0U);
}

// Every worker takes part in a lookup but rank 0, which has published nothing.
TEST_F(KvstoreBackendTest, ALookupOfAnUnpublishedKeyEndsAtTheDeadline) {
  Start(1, 2, 1);
  store_->dead = true;
  std::vector<float> value(kPartFloats, 1);
  std::optional<Status> status;
  nodes_[1]->worker.Broadcast(7, DType::kFloat32, std::as_writable_bytes(std::span(value)),
                              [&](Status s) { status = std::move(s); });
  RunFor(std::chrono::seconds(29));
  EXPECT_FALSE(status);
  RunFor(std::chrono::seconds(2));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status->message(), HasSubstr("lookup key=7: after 30 s still waiting for the push"));
}

TEST_F(KvstoreBackendTest, MetricsCountPartitionsThatTheStoreHasTaken) {
  Start(1, 1, 1);
  BroadcastAll(7, 2 * kPartFloats);
  PushPull(0, 7, 0, 2 * kPartFloats, 1);
  RunFor(std::chrono::milliseconds(10));
  Metrics metrics;
  nodes_[0]->worker.Measure(&metrics);
  const auto metric = [&](const char* name, int32_t of) {
    return metrics.numbers().at({name, of});
  };
  EXPECT_EQ(metric("pushed_partitions_total", 0), 4) << "with the first value";
  EXPECT_EQ(metric("pushed_bytes_total", 0), 4 * kPart);
  EXPECT_EQ(metric("pulled_partitions_total", 0), 2);
  EXPECT_EQ(metric("pulled_bytes_total", 0), 2 * kPart);
  EXPECT_GT(metric("pull_seconds_total", 0), 0);
  EXPECT_EQ(metric("repeats_total", 0), 0);
  EXPECT_EQ(metric("pending_requests", Metrics::kWhole), 0);
}

TEST_F(KvstoreBackendTest, AnOptimizerIsRefusedWhichConcernsOnlyThatCall) {
  Start(1, 1, 1);
  std::optional<Status> status;
  nodes_[0]->worker.SetOptimizer("sgd", "", [&](Status s) { status = std::move(s); });
  RunFor(std::chrono::milliseconds(10));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(nodes_[0]->failure.ok());
}

TEST_F(KvstoreBackendTest, ABarrierEndsWhenAllHaveCome) {
  Start(1, 2, 2);
  int met = 0;
  const auto come = [&](uint32_t rank) {
    nodes_[rank]->executor.Post([this, &met, rank] {
      nodes_[rank]->backend.Barrier([&met](const Status& status) { met += status.ok() ? 1 : 100; });
    });
    RunFor(std::chrono::milliseconds(10));
  };
  come(0);
  come(0);
  EXPECT_EQ(met, 0);
  come(1);
  EXPECT_EQ(met, 2);
  come(1);
  EXPECT_EQ(met, 4);
}

}  // namespace
}  // namespace bs::backend
