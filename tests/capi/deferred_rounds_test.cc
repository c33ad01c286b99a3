// Push-pulls that are deferred until their tensors are ready.
#include "capi/deferred_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "base/snapshot.h"
#include "base/status.h"
#include "capi/job.h"

namespace bs::test {
namespace {

constexpr uint64_t kKey = 7;

// A worker alone, and a push-pull that is deferred.
class DeferredRoundsTest : public ::testing::Test {
 protected:
  DeferredRoundsTest() {
    job_.StartAll();
    std::vector<Floats> values(1, Floats(4, 0.0F));
    BroadcastAll(&job_, kKey, &values);
    bs_operation operation = MakePushPull(kKey, in_, &out_, waiter_.get());
    operation.deferred = &deferred_;
    EXPECT_EQ(bs_worker_start_operation(worker(), &operation, nullptr), 0);
  }
  bs_worker* worker() { return job_.workers[0].get(); }

  Job job_{1, 1};
  Floats in_ = Floats(4, 1.0F);
  Floats out_ = Floats(4, 0.0F);
  const WaiterPtr waiter_{bs_waiter_new(2)};
  bs_deferred* deferred_ = nullptr;
};

TEST_F(DeferredRoundsTest, AnotherThreadStartsThemWithTheValuesThatMemoryHoldsThen) {
  EXPECT_EQ(bs_waiter_wait(waiter_.get(), 20, nullptr), 0);
  std::ranges::fill(in_, 3.0F);  // the copy is over
  std::thread(bs_deferred_start, deferred_).join();
  EXPECT_EQ(Await(waiter_.get()).code, 0);
  EXPECT_EQ(out_, in_);
  CloseWorkers(&job_);
  ExpectAllEndedWell(&job_);
}

TEST_F(DeferredRoundsTest, TheirRatesAreCopied) {
  bs_deferred_start(deferred_);
  EXPECT_EQ(Await(waiter_.get()).code, 0);
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_deferred* later = nullptr;
  {
    const auto rates = std::make_unique<bs_rates>(bs_rates{0.5, 0, 1});
    bs_operation operation = MakePushPull(kKey, in_, &out_, waiter.get());
    operation.deferred = &later;
    operation.rates = rates.get();
    ASSERT_EQ(bs_worker_start_operation(worker(), &operation, nullptr), 0);
  }
  bs_deferred_start(later);
  EXPECT_EQ(Await(waiter.get()).code, 0);
  CloseWorkers(&job_);
  ExpectAllEndedWell(&job_);
}

TEST_F(DeferredRoundsTest, FailWhenTheirWorkerIsClosedAndCanBeStartedLater) {
  CloseWorkers(&job_);
  const bs_error error = Await(waiter_.get());
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kCancelled));
  EXPECT_SNAPSHOT(error.message, "the worker was closed before the tensor was ready");
  bs_deferred_start(deferred_);
  ExpectAllEndedWell(&job_);
}

TEST_F(DeferredRoundsTest, AnErrorOfTheStartGoesToBothCallbacks) {
  bs_worker_fail(worker(), "for this test");
  while (bs_worker_status(worker(), nullptr) == 0) std::this_thread::yield();
  bs_deferred_start(deferred_);
  EXPECT_NE(std::strstr(Await(waiter_.get()).message, "for this test"), nullptr);
}

}  // namespace
}  // namespace bs::test
