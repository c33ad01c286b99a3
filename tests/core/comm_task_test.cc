// CommTask: what it says of itself, and which calls are mistakes.
#include "core/comm_task.h"

#include <gtest/gtest.h>

#include "core/core.h"
#include "core/recording_task.h"

namespace bs {
namespace {

CoreOptions SmallOptions() {
  return {.num_servers = 2, .partition_bytes = 100, .credit_bytes = 1000};
}

TEST(CommTask, KnowsItsKeyRoundPriorityAndSize) {
  std::vector<Started> log;
  const RecordingTask task({.key = 7, .priority = -3, .size_bytes = 250}, &log);
  EXPECT_EQ(task.key(), 7U);
  EXPECT_EQ(task.round(), 1U);
  EXPECT_EQ(task.priority(), -3);
  EXPECT_EQ(task.size_bytes(), 250U);
  EXPECT_TRUE(task.partitions().empty());
}

TEST(CommTask, IsCutIntoRangesThatCoverEveryByteOnce) {
  std::vector<Started> log;
  ManualDefer defer;
  RecordingTask task({.size_bytes = 250, .num_servers = 2}, &log);
  Core core(SmallOptions(), defer.fn());
  core.Add(&task);
  ASSERT_EQ(task.partitions().size(), 3U);
  EXPECT_EQ(task.partitions()[1].offset_bytes, 100U);
  EXPECT_EQ(task.partitions()[1].server, 1U);
  EXPECT_EQ(task.partitions()[2].size_bytes, 50U);
  core.FailAll(Status::Cancelled("end of test"));
}

TEST(CommTask, EmptyTensorHasOneEmptyPartitionAndFinishes) {
  std::vector<Started> log;
  ManualDefer defer;
  RecordingTask task({.key = 9, .size_bytes = 0}, &log);
  Core core(SmallOptions(), defer.fn());
  core.Add(&task);
  task.NotifyReady();
  defer.RunAll();
  EXPECT_EQ(log, (std::vector<Started>{{9, 0, 0, 0}}));
  task.NotifyFinish(0, Status::Ok());
  ASSERT_TRUE(task.finished.has_value());
  EXPECT_TRUE(task.finished->ok());
  EXPECT_EQ(core.num_tasks(), 0U);
}

class CommTaskDeathTest : public ::testing::Test {
 protected:
  CommTaskDeathTest() { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
  std::vector<Started> log_;
  ManualDefer defer_;
};

TEST_F(CommTaskDeathTest, NotifyingAnUnregisteredTaskIsAMistake) {
  RecordingTask task({.size_bytes = 10}, &log_);
  EXPECT_DEATH(task.NotifyReady(), "check failed");
  EXPECT_DEATH(task.NotifyFinish(0, Status::Ok()), "check failed");
}

TEST_F(CommTaskDeathTest, ReadyTwiceIsAMistake) {
  const auto twice = [this] {
    RecordingTask task({.size_bytes = 10}, &log_);
    Core core(SmallOptions(), defer_.fn());
    core.Add(&task);
    task.NotifyReady();
    task.NotifyReady();
  };
  EXPECT_DEATH(twice(), "check failed: !task->ready_");
}

TEST_F(CommTaskDeathTest, FinishingTwiceIsAMistake) {
  const auto twice = [this] {
    RecordingTask task({.size_bytes = 150}, &log_);
    Core core(SmallOptions(), defer_.fn());
    core.Add(&task);
    task.NotifyReady();
    defer_.RunAll();
    task.NotifyFinish(0, Status::Ok());
    task.NotifyFinish(0, Status::Ok());
  };
  EXPECT_DEATH(twice(), "kStarted");
}

TEST_F(CommTaskDeathTest, FinishingAPartitionThatWasNotStartedIsAMistake) {
  const auto early = [this] {
    RecordingTask task({.size_bytes = 150}, &log_);
    Core core(SmallOptions(), defer_.fn());
    core.Add(&task);
    task.NotifyReady();
    task.NotifyFinish(0, Status::Ok());
  };
  EXPECT_DEATH(early(), "kStarted");
}

TEST_F(CommTaskDeathTest, DestroyingARegisteredTaskIsAMistake) {
  const auto destroy = [this] {
    Core core(SmallOptions(), defer_.fn());
    RecordingTask task({.size_bytes = 10}, &log_);
    core.Add(&task);
  };
  EXPECT_DEATH(destroy(), "check failed: core_ == nullptr");
}

TEST_F(CommTaskDeathTest, PartitionsThatLeaveAHoleAreAMistake) {
  class Hole final : public RecordingTask {
   public:
    using RecordingTask::RecordingTask;
    std::vector<bs::Partition> Partition(uint64_t) override {
      return {{.index = 0, .server = 0, .offset_bytes = 0, .size_bytes = 9}};
    }
  };
  const auto add = [this] {
    Hole task({.size_bytes = 10}, &log_);
    Core core(SmallOptions(), defer_.fn());
    core.Add(&task);
  };
  EXPECT_DEATH(add(), "offset_bytes == task.size_bytes_");
}

}  // namespace
}  // namespace bs
