// A job of 64 nodes on one host: start, a sum, an end in good order.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "api/job.h"

namespace bs::test {
namespace {

constexpr int kWorkers = 40;
constexpr int kServers = 23;
constexpr int kFloat32 = 0;

// Each worker has connections to and from each server; all are in this process.
bool AllowManyDescriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  constexpr rlim_t kNeeded = 6000;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kNeeded;
}

TEST(ManyNodes, SixtyFourOnOneHostStartSumAndEnd) {
  if (!AllowManyDescriptors()) GTEST_SKIP() << "a process may have too few descriptors here";
  Job job(kWorkers, kServers, {{"BYTESCHEDULER_SERVER_THREADS", "1"}});
  job.StartAll();
  ASSERT_FALSE(Test::HasFatalFailure());
  const WaiterPtr begun(bs_waiter_new(kWorkers));
  std::vector<Floats> values(kWorkers, Floats(1000, 1));
  bs_error error{};
  for (size_t i = 0; i < kWorkers; ++i) {
    ASSERT_EQ(
        bs_worker_broadcast(job.workers[i].get(), 7, kFloat32, values[i].data(),
                            values[i].size() * sizeof(float), bs_waiter_done, begun.get(), &error),
        0)
        << error.message;
  }
  ASSERT_EQ(Await(begun.get()).code, 0);
  const WaiterPtr summed(bs_waiter_new(2 * kWorkers));
  std::vector<Floats> sums(kWorkers, Floats(1000));
  for (size_t i = 0; i < kWorkers; ++i) {
    const bs_push_pull request = MakePushPull(7, values[i], &sums[i], summed.get());
    ASSERT_EQ(bs_worker_push_pull(job.workers[i].get(), &request, &error), 0) << error.message;
  }
  ASSERT_EQ(Await(summed.get()).code, 0);
  for (const Floats& sum : sums) EXPECT_EQ(sum, Floats(1000, kWorkers));
  for (WorkerPtr& worker : job.workers) bs_worker_close(worker.release(), 0, nullptr);
  for (NodePtr& server : job.servers) {
    EXPECT_EQ(bs_node_wait(server.get(), kPatienceMs, &error), 1);
    EXPECT_EQ(error.code, 0) << error.message;
  }
  EXPECT_EQ(bs_node_wait(job.scheduler.get(), kPatienceMs, &error), 1);
  EXPECT_EQ(error.code, 0) << error.message;
}

}  // namespace
}  // namespace bs::test
