// Push-pulls that are held back until their tensors are ready.
#include "capi/held_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "bytescheduler/status.h"
#include "capi/job.h"

namespace bs::test {
namespace {

constexpr uint64_t kKey = 7;

void Declare(Job* job) {
  std::vector<Floats> values(1, Floats(4, 0.0F));
  BroadcastAll(job, kKey, &values);
}

bs_held* Hold(Job* job, const Floats& in, Floats* out, bs_waiter* waiter) {
  const bs_push_pull request = MakePushPull(kKey, in, out, waiter);
  bs_held* held = nullptr;
  EXPECT_EQ(bs_worker_hold_push_pull(job->workers[0].get(), &request, &held, nullptr), 0);
  return held;
}

TEST(HeldRounds, AnotherThreadStartsThemWithWhatMemoryHoldsThen) {
  Job job(1, 1);
  job.StartAll();
  Declare(&job);
  Floats in(4, -1.0F);
  Floats out(4, 0.0F);
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_held* const held = Hold(&job, in, &out, waiter.get());
  EXPECT_EQ(bs_waiter_wait(waiter.get(), 20, nullptr), 0);
  std::ranges::fill(in, 3.0F);  // the copy is over
  std::thread(bs_held_start, held).join();
  EXPECT_EQ(Await(waiter.get()).code, 0);
  EXPECT_EQ(out, in);
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(HeldRounds, FailWhenTheirWorkerIsClosedAndCanBeStartedLater) {
  Job job(1, 1);
  job.StartAll();
  Declare(&job);
  const Floats in(4, 1.0F);
  Floats out(4, 0.0F);
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_held* const held = Hold(&job, in, &out, waiter.get());
  CloseWorkers(&job);
  const bs_error error = Await(waiter.get());
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kCancelled));
  EXPECT_STREQ(error.message, "the worker was closed before the tensor was ready");
  bs_held_start(held);
  ExpectAllEndedWell(&job);
}

TEST(HeldRounds, AnErrorOfTheStartGoesToBothCallbacks) {
  Job job(1, 1);
  job.StartAll();
  Declare(&job);
  const Floats in(4, 1.0F);
  Floats out(4, 0.0F);
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_held* const held = Hold(&job, in, &out, waiter.get());
  bs_worker_fail(job.workers[0].get(), "for this test");
  while (bs_worker_status(job.workers[0].get(), nullptr) == 0) std::this_thread::yield();
  bs_held_start(held);
  EXPECT_NE(std::strstr(Await(waiter.get()).message, "for this test"), nullptr);
}

}  // namespace
}  // namespace bs::test
