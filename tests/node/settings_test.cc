// Settings that only show in what a whole job does: each reaches the part that it is meant for.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "bytescheduler/c_api.h"
#include "capi/job.h"

namespace bs::test {
namespace {

// More than goes in one message with its pull, so that a push ends when it has arrived.
constexpr size_t kCount = 5000;

struct Ends {
  WaiterPtr pushed{bs_waiter_new(1)};
  WaiterPtr pulled{bs_waiter_new(1)};
};

void Push(bs_worker* worker, const Floats& in, Floats* out, Ends* ends) {
  bs_operation operation = MakePushPull(7, in, out, nullptr);
  operation.pushed = [](void* context, int code, const char* message) {
    bs_waiter_done(static_cast<Ends*>(context)->pushed.get(), code, message);
  };
  operation.done = [](void* context, int code, const char* message) {
    bs_waiter_done(static_cast<Ends*>(context)->pulled.get(), code, message);
  };
  operation.context = ends;
  ASSERT_EQ(bs_worker_start_operation(worker, &operation, nullptr), 0);
}

void Declare(Job* job) {
  std::vector<Floats> values(job->workers.size(), Floats(kCount));
  const WaiterPtr waiter(bs_waiter_new(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(Broadcast(job->workers[i].get(), 7, &values[i], waiter.get()), 0);
  }
  ASSERT_EQ(Await(waiter.get()).code, 0);
}

// The sum for three workers whose pushes of 1e8, 1 and -1e8 arrive in the order 0, 2, 1.  In the
// order of ranks the 1 is lost in rounding; in that of arrival it is not.
float SumOfThree(const Settings& settings) {
  Job job(3, 1, settings);
  job.StartAll();
  Declare(&job);
  if (testing::Test::HasFatalFailure()) return -1;
  const std::array<Floats, 3> in = {Floats(kCount, 1e8F), Floats(kCount, 1), Floats(kCount, -1e8F)};
  std::array<Floats, 3> out = {Floats(kCount), Floats(kCount), Floats(kCount)};
  std::array<Ends, 3> ends;
  for (const size_t rank : {0, 2, 1}) {
    Push(job.workers[rank].get(), in[rank], &out[rank], &ends[rank]);
    EXPECT_EQ(Await(ends[rank].pushed.get()).code, 0);
  }
  for (const Ends& end : ends) EXPECT_EQ(Await(end.pulled.get()).code, 0);
  EXPECT_EQ(out[0], out[1]);
  EXPECT_EQ(out[0], out[2]);
  return out[0][0];
}

TEST(Settings, HoldIsHowMuchAServerHoldsBackToSumInTheOrderOfRanks) {
  EXPECT_EQ(SumOfThree({{"BYTESCHEDULER_HOLD", "1MiB"}}), 0);
  EXPECT_EQ(SumOfThree({{"BYTESCHEDULER_HOLD", "0"}}), 1);
}

TEST(Settings, DeterministicHoldsBackWhateverTheOrderOfRanksNeeds) {
  EXPECT_EQ(SumOfThree({{"BYTESCHEDULER_HOLD", "0"}, {"BYTESCHEDULER_DETERMINISTIC", "1"}}), 0);
}

}  // namespace
}  // namespace bs::test
