// SimExecutor: one seed is one trace, other seeds interleave differently, order is kept.
#include "sim/sim_executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace bs::sim {
namespace {

using std::chrono::milliseconds;

struct Trace {
  std::vector<int> order;  // executor * 100 + its how-manieth post
  uint64_t trace_hash = 0;
};

Trace Interleave(uint64_t seed) {
  Trace run;
  SimClock clock(seed);
  SimExecutor a(&clock);
  SimExecutor b(&clock);
  for (int i = 0; i < 10; ++i) {
    a.Post([&run, i] { run.order.push_back(100 + i); });
    b.Post([&run, i] { run.order.push_back(200 + i); });
  }
  while (clock.Step()) {
  }
  run.trace_hash = clock.trace_hash();
  return run;
}

TEST(SimExecutor, SameSeedGivesTheSameTrace) {
  const Trace first = Interleave(7);
  const Trace second = Interleave(7);
  EXPECT_EQ(first.order, second.order);
  EXPECT_EQ(first.trace_hash, second.trace_hash);
}

TEST(SimExecutor, SeedsInterleaveExecutorsDifferently) {
  std::set<std::vector<int>> orders;
  std::set<uint64_t> hashes;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Trace run = Interleave(seed);
    orders.insert(run.order);
    hashes.insert(run.trace_hash);
  }
  EXPECT_GT(orders.size(), 15U);
  EXPECT_EQ(hashes.size(), orders.size());
}

TEST(SimExecutor, TasksOfOneExecutorKeepTheirOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<int> of_a;
    for (const int step : Interleave(seed).order) {
      if (step < 200) of_a.push_back(step - 100);
    }
    EXPECT_EQ(of_a, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})) << "seed " << seed;
  }
}

TEST(SimExecutor, TimersRunWhenDueAndMoveTheTime) {
  SimClock clock(1);
  SimExecutor executor(&clock);
  std::vector<int> order;
  executor.PostAt(TimePoint(milliseconds(20)), [&] { order.push_back(20); });
  executor.PostAt(TimePoint(milliseconds(10)), [&] {
    order.push_back(10);
    EXPECT_EQ(executor.Now(), TimePoint(milliseconds(10)));
    executor.PostAt(TimePoint(), [&] { order.push_back(11); });  // long past: due now
  });
  executor.Post([&] { order.push_back(0); });
  EXPECT_EQ(clock.RunUntil(TimePoint(milliseconds(15))), 3U);
  EXPECT_EQ(order, (std::vector<int>{0, 10, 11}));
  EXPECT_EQ(clock.Now(), TimePoint(milliseconds(15)));
  EXPECT_EQ(clock.RunUntil(TimePoint::max()), 1U);
  EXPECT_EQ(clock.Now(), TimePoint(milliseconds(20)));
  EXPECT_FALSE(clock.Step());
}

TEST(SimExecutor, SkippedTimeMakesDueTasksLateAndNeverGoesBack) {
  SimClock clock(1);
  SimExecutor executor(&clock);
  std::vector<TimePoint> times;
  const TimePoint start = clock.Now();
  for (const int due : {1, 9}) {
    executor.PostAt(start + milliseconds(due), [&] { times.push_back(clock.Now()); });
  }
  clock.Skip(milliseconds(5));
  while (clock.Step()) {
  }
  EXPECT_EQ(times, (std::vector{start + milliseconds(5), start + milliseconds(9)}));
}

TEST(SimExecutor, CancelledTaskIsDestroyedUnrun) {
  SimClock clock(1);
  SimExecutor executor(&clock);
  const auto held = std::make_shared<int>(0);
  const TimerId id = executor.PostAt(TimePoint(milliseconds(1)), [held] { ++*held; });
  EXPECT_EQ(held.use_count(), 2);
  executor.Cancel(id);
  EXPECT_EQ(held.use_count(), 1);
  executor.Cancel(id);
  executor.Cancel(12345);
  EXPECT_FALSE(clock.Step());
  EXPECT_EQ(*held, 0);
}

TEST(SimExecutor, EndDestroysQueuedTasksEvenIfTheyPostMore) {
  struct PostsWhenDestroyed {
    explicit PostsWhenDestroyed(SimExecutor* e, std::shared_ptr<int> h)
        : executor(e), held(std::move(h)) {}
    PostsWhenDestroyed(const PostsWhenDestroyed&) = delete;
    PostsWhenDestroyed& operator=(const PostsWhenDestroyed&) = delete;
    ~PostsWhenDestroyed() {
      executor->Post([h = held] { ++*h; });
    }
    SimExecutor* executor;
    std::shared_ptr<int> held;
  };
  const auto held = std::make_shared<int>(0);
  SimClock clock(1);
  {
    SimExecutor executor(&clock);
    executor.Post([p = std::make_unique<PostsWhenDestroyed>(&executor, held)] { ++*p->held; });
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
  EXPECT_FALSE(clock.Step());
}

TEST(SimExecutor, OnlyTheRunningExecutorIsCurrent) {
  SimClock clock(1);
  SimExecutor a(&clock);
  SimExecutor b(&clock);
  a.Post([&] {
    EXPECT_TRUE(a.IsCurrent());
    EXPECT_FALSE(b.IsCurrent());
  });
  EXPECT_TRUE(clock.Step());
  EXPECT_FALSE(a.IsCurrent());
}

TEST(SimClock, UniformStaysInItsRangeAndChanceObeysItsEnds) {
  SimClock clock(3);
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(clock.Uniform(5, 8));
  EXPECT_EQ(seen, (std::set<uint64_t>{5, 6, 7, 8}));
  EXPECT_FALSE(clock.Chance(0));
  EXPECT_TRUE(clock.Chance(1));
}

}  // namespace
}  // namespace bs::sim
