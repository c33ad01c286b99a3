// Callbacks of a library's sums, the way back to an executor that may go, the pace of looks.
#include "backend/collective/library_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "sim/sim_executor.h"

namespace bs::backend::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LibraryThreadTest : public ::testing::Test {
 protected:
  SumCallbacks::Done Note(const std::string& name) {
    return [this, name](const Status& status) {
      ended_.push_back(name + (status.ok() ? "" : " " + status.message()));
    };
  }

  void RunFor(Duration time) { clock_.RunUntil(executor_.Now() + time); }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  SumCallbacks callbacks_;
  std::vector<std::string> ended_;
};

TEST_F(LibraryThreadTest, SumsEndByNumberAndOnce) {
  callbacks_.Add(0, Note("a"));
  callbacks_.Add(1, Note("b"));
  EXPECT_TRUE(callbacks_.Waits(1));
  callbacks_.End({1, 7});
  callbacks_.End({1});
  EXPECT_THAT(ended_, ElementsAre("b"));
  EXPECT_EQ(callbacks_.num_ended(), 1U);
  EXPECT_FALSE(callbacks_.empty() || callbacks_.Waits(1));
}

TEST_F(LibraryThreadTest, TheFirstErrorEndsAllAndLaterSums) {
  SumCallbacks::Done late = Note("late");
  EXPECT_FALSE(callbacks_.Refuses(&executor_, &late));
  callbacks_.Add(0, Note("a"));
  callbacks_.Fail(Status::Unavailable("first"));
  callbacks_.Fail(Status::Unavailable("second"));
  callbacks_.EndAll();
  EXPECT_THAT(ended_, ElementsAre("a first"));
  EXPECT_TRUE(callbacks_.Refuses(&executor_, &late));
  EXPECT_EQ(ended_.size(), 1U) << "inside the call";
  RunFor(Duration::zero());
  EXPECT_THAT(ended_, ElementsAre("a first", "late first"));
  EXPECT_EQ(callbacks_.num_ended(), 0U);
}

TEST_F(LibraryThreadTest, CallbacksOfAnOwnerThatGoesAreDropped) {
  callbacks_.Add(0, Note("a"));
  callbacks_.Close();
  EXPECT_TRUE(callbacks_.is_closed() && callbacks_.empty());
  callbacks_.End({0});
  callbacks_.EndAll();
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(LibraryThreadTest, AnAbandonedExecutorGetsNoTask) {
  WayBack way(&executor_);
  int runs = 0;
  way.Post(Duration::zero(), [&] { ++runs; });
  way.Post(std::chrono::seconds(1), [&] { runs += 10; });
  RunFor(Duration::zero());
  EXPECT_EQ(runs, 1);
  RunFor(std::chrono::seconds(2));
  EXPECT_EQ(runs, 11);
  EXPECT_TRUE(way.Abandon());
  EXPECT_FALSE(way.Abandon());
  way.Post(Duration::zero(), [&] { ++runs; });
  RunFor(std::chrono::seconds(2));
  EXPECT_EQ(runs, 11);
}

TEST_F(LibraryThreadTest, ALookFollowsAtOnceOnlyBehindManyShortPauses) {
  LookPace pace(std::chrono::microseconds(100));
  const TimePoint begin = executor_.Now();
  int looks = 0;
  pace.Again(&executor_, begin, [&] { ++looks; });
  RunFor(Duration::zero());
  EXPECT_EQ(looks, 0) << "it sleeps first";
  RunFor(std::chrono::microseconds(50));
  EXPECT_EQ(looks, 1);
  TimePoint now = executor_.Now();
  for (int i = 0; i <= Spin::kFewest + 1; ++i, now += std::chrono::microseconds(10)) {
    pace.Worked(now, now);
  }
  pace.Again(&executor_, now, [&] { ++looks; });
  RunFor(Duration::zero());
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(pace.Idle(now), std::chrono::microseconds(10));
}

}  // namespace
}  // namespace bs::backend::collective
