// Metrics of nodes, also of those that do not answer in time.
#include "node/node_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "capi/job.h"
#include "ps/transport.h"
#include "transport/rdma/rdma_options.h"

namespace bs::test {
namespace {

using std::chrono::milliseconds;
using Told = std::map<std::pair<std::string, int>, double>;

void Add(void* context, const char* name, int of, double value) {
  (*static_cast<Told*>(context))[{name, of}] = value;
}

void AddStep(void* context, uint64_t number, double seconds) {
  static_cast<std::vector<std::pair<uint64_t, double>>*>(context)->emplace_back(number, seconds);
}

Told Measure(const bs_worker* worker) {
  Told told;
  bs_error error{};
  EXPECT_EQ(bs_worker_measure(worker, kPatienceMs, Add, &told, &error), 0) << error.message;
  return told;
}

Told Measure(const bs_node* node) {
  Told told;
  bs_error error{};
  EXPECT_EQ(bs_node_measure(node, kPatienceMs, Add, &told, &error), 0) << error.message;
  return told;
}

TEST(AwaitMetrics, AnAnswerAfterTheDeadlineIsHarmless) {
  node::GiveMetrics late;
  const Result<Metrics> none = node::Await<Metrics>(
      milliseconds(1), [&](node::GiveMetrics give) { late = std::move(give); });
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kDeadlineExceeded);
  late(Metrics());
}

TEST(AwaitMetrics, AMissingAnswerEndsAtTheDeadline) {
  const Result<Metrics> none =
      node::Await<Metrics>(milliseconds(1), [](const node::GiveMetrics&) {});
  EXPECT_EQ(none.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(AddRdma, EachCarrierHasItsBytesAndEachBreakItsStatus) {
  const ps::SentCounts sent{.shared_bytes = 20, .tcp_bytes = 30};
  ps::RdmaCounts rdma;
  rdma.sent_bytes = 10;
  rdma.window_bytes = 1U << 17U;
  rdma.breaks.at(12) = 2;
  Metrics metrics;
  node::AddSent(sent, &metrics);
  node::AddRdma(rdma, &metrics);
  const auto& told = metrics.numbers();
  EXPECT_EQ(told.at({"rdma_sent_bytes_total", -1}), 10);
  EXPECT_EQ(told.at({"sent_shared_bytes_total", -1}), 20);
  EXPECT_EQ(told.at({"sent_tcp_bytes_total", -1}), 30);
  EXPECT_EQ(told.at({"rdma_window_bytes", -1}), 1 << 17);
  EXPECT_EQ(told.at({"rdma_breaks_total", 12}), 2);
  EXPECT_EQ(told.at({"rdma_breaks_total", 0}), 0) << "the first one shows that there are none";
  EXPECT_EQ(told.count({"rdma_breaks_total", 10}), 0U);
}

TEST(Measure, AServerThatWaitsForTheOtherNodesIsNotReady) {
  Job job(1, 1);
  job.StartScheduler();
  const NodePtr server = job.StartNode("server");
  const Told told = Measure(server.get());
  EXPECT_EQ(told.at({"ready", -1}), 0);
  EXPECT_EQ(told.count({"partitions", -1}), 0U);
  EXPECT_EQ(Measure(job.scheduler.get()).at({"workers", -1}), 0);
  EXPECT_EQ(Measure(job.scheduler.get()).at({"servers", -1}), 0) << "the job is not complete";
}

TEST(Measure, AWorkerThatHasNotJoinedIsRefused) {
  Job job(1, 1);
  job.StartScheduler();
  const WorkerPtr worker = job.StartWorker();
  Told told;
  bs_error error{};
  EXPECT_EQ(bs_worker_measure(worker.get(), 1, Add, &told, &error),
            static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(bs_worker_steps(worker.get(), 1, AddStep, nullptr, &error),
            static_cast<int>(StatusCode::kFailedPrecondition));
}

TEST(Measure, EveryNodeOfAJobTellsItsOwn) {
  Job job(2, 2);
  job.StartAll();
  for (const WorkerPtr& worker : job.workers) {
    Floats value(1000, 1);
    const WaiterPtr waiter(bs_waiter_new(1));
    ASSERT_EQ(Broadcast(worker.get(), 7, &value, waiter.get()), 0);
    ASSERT_EQ(Await(waiter.get()).code, 0);
  }
  double pushed = 0;
  const Told first = Measure(job.workers[0].get());
  for (int server = 0; server < 2; ++server) pushed += first.at({"pushed_bytes_total", server});
  EXPECT_EQ(pushed, 4000);
  EXPECT_EQ(first.at({"failed", -1}), 0);
  EXPECT_GT(first.at({"sent_messages_total", -1}), 0);
  double kept = 0;
  for (const NodePtr& server : job.servers) {
    const Told told = Measure(server.get());
    EXPECT_EQ(told.at({"ready", -1}), 1);
    EXPECT_GT(told.at({"sent_messages_total", -1}), 0);
    kept += told.at({"value_bytes", -1});
  }
  EXPECT_EQ(kept, 4000);
  const Told all = Measure(job.scheduler.get());
  EXPECT_EQ(all.at({"workers", -1}), 2);
  EXPECT_EQ(all.at({"servers", -1}), 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GE(all.at({"worker_silent_seconds", rank}), 0);
    EXPECT_GE(all.at({"server_silent_seconds", rank}), 0);
  }
}

// Many at once are more than go out at a time: some wait, and travel with others.
TEST(Measure, SmallTensorsTravelTogetherUnlessToldNotTo) {
  struct Case {
    const char* fusion;
    const char* partition;
    size_t size;
    bool fuses;
  };
  for (const auto& [fusion, partition, size, fuses] :
       {Case{.fusion = "16KiB", .partition = "128KiB", .size = 100, .fuses = true},
        Case{.fusion = "0", .partition = "128KiB", .size = 100, .fuses = false},
        // No two of them fit in a partition.
        Case{.fusion = "16KiB", .partition = "4KiB", .size = 750, .fuses = false}}) {
    Job job(1, 1, {{"BYTESCHEDULER_FUSION", fusion}, {"BYTESCHEDULER_PARTITION", partition}});
    job.StartAll();
    const WorkerPtr worker = std::move(job.workers[0]);
    constexpr uint64_t kKeys = 500;
    std::vector<Floats> values(kKeys, Floats(size, 1));
    std::vector<Floats> sums(kKeys, Floats(size));
    const WaiterPtr declared(bs_waiter_new(kKeys));
    for (uint64_t key = 0; key < kKeys; ++key) {
      ASSERT_EQ(Broadcast(worker.get(), key, &values[key], declared.get()), 0);
    }
    ASSERT_EQ(Await(declared.get()).code, 0);
    // Acknowledgements, which are empty, may have been fused.
    const double before = Measure(job.servers[0].get()).at({"sent_fused_total", -1});
    for (int round = 0; round < 5; ++round) {
      const WaiterPtr waiter(bs_waiter_new(2 * kKeys));
      for (uint64_t key = 0; key < kKeys; ++key) {
        ASSERT_EQ(PushPull(worker.get(), key, values[key], &sums[key], waiter.get()), 0);
      }
      ASSERT_EQ(Await(waiter.get()).code, 0);
      for (Floats& sum : sums) EXPECT_EQ(std::exchange(sum, Floats(size)), Floats(size, 1));
    }
    const Told told = Measure(worker.get());
    const Told of_server = Measure(job.servers[0].get());
    EXPECT_EQ(told.at({"sent_fused_total", -1}) > 0, fuses);
    EXPECT_EQ(of_server.at({"sent_fused_total", -1}) > before, fuses);
    EXPECT_GE(told.at({"sent_messages_total", -1}), 6 * kKeys);
  }
}

TEST(Steps, AreToldWithTheirNumbers) {
  Job job(1, 1);
  job.StartAll();
  const WorkerPtr worker = std::move(job.workers[0]);
  Floats value(1000, 1);
  Floats sum(1000);
  const WaiterPtr declared(bs_waiter_new(1));
  ASSERT_EQ(Broadcast(worker.get(), 7, &value, declared.get()), 0);
  ASSERT_EQ(Await(declared.get()).code, 0);
  for (int step = 0; step < 3; ++step) {
    const WaiterPtr waiter(bs_waiter_new(2));
    ASSERT_EQ(PushPull(worker.get(), 7, value, &sum, waiter.get()), 0);
    ASSERT_EQ(Await(waiter.get()).code, 0);
  }
  std::vector<std::pair<uint64_t, double>> steps;
  bs_error error{};
  ASSERT_EQ(bs_worker_steps(worker.get(), kPatienceMs, AddStep, &steps, &error), 0)
      << error.message;
  ASSERT_EQ(steps.size(), 2U);  // the first has no length
  EXPECT_EQ(steps[0].first, 2U);
  EXPECT_EQ(steps[1].first, 3U);
  for (const auto& [number, seconds] : steps) EXPECT_GT(seconds, 0) << number;
}

}  // namespace
}  // namespace bs::test
