// BarrierQueue: requests for barriers, their repeats, ends and limits.
#include "membership/member/barrier_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/sim_executor.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Texts = std::vector<std::string>;

class BarrierQueueTest : public ::testing::Test {
 protected:
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  BarrierQueue::Call CallOf(const std::string& name, int32_t group = kWorkerGroup) {
    BarrierQueue::Call call;
    call.group = group;
    call.limit = BarrierQueue::Limit{seconds(60), "THE_SETTING"};
    call.done = [this, name](const bs::Status& status) {
      ends_.push_back(name + ": " + status.ToString());
    };
    return call;
  }
  // Returns the requests since the last call: a group and a sequence each.
  Texts Sent() { return std::exchange(sent_, {}); }

  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  uint64_t latest_ = 100;
  Texts sent_;
  Texts ends_;
  BarrierQueue queue_{
      &scope_,
      seconds(1),
      {.next_sequence = [this] { return ++latest_; },
       .send =
           [this](const BarrierQueue::Call& call, uint64_t sequence) {
             sent_.push_back(std::to_string(call.group) + " " + std::to_string(sequence));
           },
       .complete = [](StatusCallback done, const bs::Status& status) { done(status); }}};
};

TEST_F(BarrierQueueTest, RequestIsRepeatedUntilItsBarrierEnds) {
  queue_.Add(CallOf("a"));
  EXPECT_EQ(Sent(), Texts{"4 101"});
  Run(milliseconds(2500));
  EXPECT_EQ(Sent(), (Texts{"4 101", "4 101"}));
  queue_.OnEnd(101, bs::Status::Ok());
  EXPECT_EQ(ends_, Texts{"a: " + bs::Status::Ok().ToString()});
  EXPECT_TRUE(queue_.empty());
  Run(seconds(100));
  EXPECT_TRUE(Sent().empty());
  EXPECT_EQ(ends_.size(), 1U);
}

TEST_F(BarrierQueueTest, BarriersBeginInTheOrderOfTheirCalls) {
  queue_.Add(CallOf("a"));
  queue_.Add(CallOf("b", kEveryone));
  EXPECT_EQ(Sent(), Texts{"4 101"});
  queue_.OnEnd(101, bs::Status::Ok());
  EXPECT_EQ(Sent(), Texts{"7 102"});
  Run(milliseconds(1500));
  EXPECT_EQ(Sent(), Texts{"7 102"});
  queue_.OnEnd(102, bs::Status::Unavailable("gone"));
  EXPECT_EQ(ends_.size(), 2U);
  EXPECT_EQ(ends_.back(), "b: " + bs::Status::Unavailable("gone").ToString());
}

TEST_F(BarrierQueueTest, ResponseToAnotherRequestIsIgnored) {
  queue_.OnEnd(0, bs::Status::Ok());
  queue_.Add(CallOf("a"));
  queue_.Add(CallOf("b"));
  queue_.OnEnd(100, bs::Status::Ok());
  queue_.OnEnd(102, bs::Status::Ok());
  EXPECT_TRUE(ends_.empty());
  queue_.OnEnd(101, bs::Status::Ok());
  queue_.OnEnd(101, bs::Status::Ok());  // a repeat, while b is the first
  EXPECT_EQ(ends_.size(), 1U);
}

TEST_F(BarrierQueueTest, LateBarrierEndsWithTheMissingNodesAndTheSetting) {
  queue_.Add(CallOf("a"));
  queue_.OnWaiting(100, "another barrier's nodes");
  queue_.OnWaiting(101, "worker 2");
  queue_.OnWaiting(101, "worker 1");
  Run(seconds(59));
  EXPECT_TRUE(ends_.empty());
  Run(seconds(2));
  EXPECT_EQ(ends_, Texts{"a: kDeadlineExceeded: barrier of the workers: not complete in 60 s, "
                         "waiting for worker 1 (THE_SETTING)"});
}

TEST_F(BarrierQueueTest, LimitAndMissingNodesBelongToTheFirstBarrierAlone) {
  queue_.Add(CallOf("a"));
  queue_.Add(CallOf("b", kEveryone));
  queue_.OnWaiting(101, "worker 1");
  Run(seconds(40));
  queue_.OnEnd(101, bs::Status::Ok());
  Run(seconds(59));
  EXPECT_EQ(ends_.size(), 1U);
  Run(seconds(2));
  ASSERT_EQ(ends_.size(), 2U);
  EXPECT_EQ(ends_.back(),
            "b: kDeadlineExceeded: barrier of all nodes: not complete in 60 s (THE_SETTING)");
}

TEST_F(BarrierQueueTest, BarrierWithoutLimitAndRepeatsWaitsOn) {
  BarrierQueue::Call call = CallOf("a");
  call.limit.reset();
  call.repeats = false;
  call.last = true;
  EXPECT_FALSE(queue_.in_last());
  queue_.Add(std::move(call));
  EXPECT_TRUE(queue_.in_last());
  Run(seconds(10000));
  EXPECT_EQ(Sent(), Texts{"4 101"});
  EXPECT_TRUE(ends_.empty());
  queue_.EndFirst(bs::Status::Ok());
  EXPECT_EQ(ends_.size(), 1U);
  EXPECT_FALSE(queue_.in_last());
}

TEST_F(BarrierQueueTest, EndOfAllBarriersLeavesNoTimer) {
  queue_.Add(CallOf("a"));
  queue_.Add(BarrierQueue::Call{});  // without a callback
  queue_.Add(CallOf("b"));
  Sent();
  const bs::Status why = bs::Status::Cancelled("closed");
  queue_.EndAll(why);
  EXPECT_EQ(ends_, (Texts{"a: " + why.ToString(), "b: " + why.ToString()}));
  EXPECT_TRUE(queue_.empty());
  Run(seconds(100));
  EXPECT_TRUE(Sent().empty());
  EXPECT_EQ(ends_.size(), 2U);
}

}  // namespace
}  // namespace ps
