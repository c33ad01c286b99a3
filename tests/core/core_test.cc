// Core: the paper's flow, credit per server, overtaking, and every way a task can fail.
#include "core/core.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/recording_task.h"

namespace bs {
namespace {

class CoreTest : public ::testing::Test {
 protected:
  // Partitions of 100 bytes, room for two of them.
  CoreOptions options_{
      .num_servers = 1, .partition_bytes = 100, .credit_bytes = 200, .small_tensor_bytes = 0};
  std::vector<Started> log_;
  ManualDefer defer_;

  std::vector<Started> TakeLog() { return std::exchange(log_, {}); }
  // The priority of the first partition of a tensor without company.
  Priority PriorityOfOnly(const RecordingOptions& tensor) {
    RecordingTask task(tensor, &log_);
    Core core(options_, defer_.fn());
    core.Add(&task);
    const Priority priority = task.PriorityOf(0);
    core.FailAll(Status::Cancelled("end of test"));
    return priority;
  }
  // In this order.
  static void AddReady(Core* core, std::initializer_list<RecordingTask*> tasks) {
    for (RecordingTask* task : tasks) {
      core->Add(task);
      task->NotifyReady();
    }
  }
};

TEST_F(CoreTest, TaskGoesThroughTheVerbsOfThePaper) {
  RecordingTask task({.key = 1, .size_bytes = 250}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&task);
  defer_.RunAll();
  EXPECT_TRUE(log_.empty());  // not ready yet
  task.NotifyReady();
  EXPECT_TRUE(log_.empty());  // never started inside the call
  EXPECT_EQ(core.queued(0), 3U);
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {1, 1, 0, 100}}));
  task.NotifyFinish(1, Status::Ok());
  EXPECT_TRUE(log_.empty());  // never started inside the call
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 2, 0, 50}}));
  task.NotifyFinish(0, Status::Ok());
  EXPECT_EQ(task.times_finished, 0);
  task.NotifyFinish(2, Status::Ok());
  EXPECT_EQ(task.times_finished, 1);
  EXPECT_TRUE(task.finished->ok());
  EXPECT_EQ(core.num_tasks(), 0U);
  EXPECT_EQ(core.in_flight_bytes(0), 0U);
}

TEST_F(CoreTest, APartitionMayCountForMoreThanItsBytes) {
  RecordingTask task({.key = 1, .size_bytes = 250, .credit_factor = 2}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&task});
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}}));
  EXPECT_EQ(core.in_flight_bytes(0), 200U);
  for (const uint32_t index : {0U, 1U, 2U}) {
    task.NotifyFinish(index, Status::Ok());
    defer_.RunAll();
  }
  EXPECT_EQ(task.times_finished, 1);
  EXPECT_EQ(core.in_flight_bytes(0), 0U);
}

TEST_F(CoreTest, UrgentTaskOvertakesQueuedOne) {
  RecordingTask big({.key = 1, .priority = -9, .size_bytes = 400}, &log_);
  RecordingTask urgent({.key = 2, .priority = 0, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&big);
  core.Add(&urgent);
  big.NotifyReady();
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {1, 1, 0, 100}}));
  urgent.NotifyReady();
  big.NotifyFinish(0, Status::Ok());
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{2, 0, 0, 100}}));
  core.FailAll(Status::Cancelled("end of test"));
  big.NotifyFinish(1, Status::Ok());
  urgent.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, ARaisedTaskOvertakesFromItsNextPartitionOn) {
  RecordingTask first({.key = 1, .priority = 3, .size_bytes = 400}, &log_);
  RecordingTask raised({.key = 2, .priority = 0, .size_bytes = 200}, &log_);
  RecordingTask over({.key = 3, .priority = 0, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&first);
  core.Add(&raised);
  first.NotifyReady();
  core.Reprioritise(&raised, 4);  // before it is ready
  core.Reprioritise(&over, 9);
  EXPECT_EQ(over.priority(), 0) << "it is not registered";
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {1, 1, 0, 100}}));
  raised.NotifyReady();
  first.NotifyFinish(0, Status::Ok());
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{2, 0, 0, 100}}));
  core.Reprioritise(&first, 5);
  EXPECT_EQ(core.queued_bytes(0), 300U);
  first.NotifyFinish(1, Status::Ok());
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 2, 0, 100}})) << "each partition once";
  core.FailAll(Status::Cancelled("end of test"));
  core.Reprioritise(&first, 6);
  EXPECT_EQ(core.queued(0), 0U) << "a failed task starts nothing";
  first.NotifyFinish(2, Status::Ok());
  raised.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, WithoutPriorityOrderTasksGoAsTheyBecameReady) {
  options_.priority_order = false;
  RecordingTask first({.key = 1, .priority = -9, .size_bytes = 300}, &log_);
  RecordingTask second({.key = 2, .priority = 9, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&second);
  core.Add(&first);
  first.NotifyReady();
  second.NotifyReady();
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {1, 1, 0, 100}}));
  core.Reprioritise(&first, 1);  // keeps its place before the second one
  first.NotifyFinish(0, Status::Ok());
  first.NotifyFinish(1, Status::Ok());
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 2, 0, 100}, {2, 0, 0, 100}}));
  first.NotifyFinish(2, Status::Ok());
  second.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, EachServerHasACreditOfItsOwn) {
  options_.num_servers = 2;
  RecordingTask zero({.key = 1, .priority = 5, .size_bytes = 300}, &log_);
  RecordingTask one(
      {.key = 2, .priority = 0, .size_bytes = 100, .first_server = 1, .num_servers = 2}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&zero);
  core.Add(&one);
  zero.NotifyReady();
  one.NotifyReady();
  defer_.RunAll();
  // In turns over the servers; server 0's full window does not hold server 1 back.
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {2, 0, 1, 100}, {1, 1, 0, 100}}));
  EXPECT_EQ(core.in_flight_bytes(0), 200U);
  EXPECT_EQ(core.in_flight_bytes(1), 100U);
  EXPECT_EQ(core.queued(0), 1U);
  core.FailAll(Status::Cancelled("end of test"));
  zero.NotifyFinish(0, Status::Ok());
  zero.NotifyFinish(1, Status::Ok());
  one.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, WorkersBeginAtDifferentServers) {
  options_.num_servers = 3;
  for (uint32_t first = 0; first < 3; ++first) {
    options_.first_server = first;
    RecordingTask task({.key = 1, .size_bytes = 300, .num_servers = 3}, &log_);
    Core core(options_, defer_.fn());
    core.Add(&task);
    task.NotifyReady();
    defer_.RunAll();
    const std::vector<Started> started = TakeLog();
    ASSERT_EQ(started.size(), 3U);
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t server = (first + i) % 3;
      EXPECT_EQ(started[i], (Started{1, server, server, 100}));
      task.NotifyFinish(server, Status::Ok());
    }
  }
}

TEST_F(CoreTest, TheFirstHalfGoesInTheOrderOfReadiness) {
  options_.credit_bytes = 100;
  RecordingTask back({.key = 1, .priority = -9, .size_bytes = 400}, &log_);
  RecordingTask front({.key = 2, .priority = -1, .size_bytes = 300}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&back, &front});
  EXPECT_EQ(back.PriorityOf(1), kEarlyPriority);
  EXPECT_EQ(back.PriorityOf(2), -9);
  std::vector<Started> started;
  for (int i = 0; i < 7; ++i) {
    defer_.RunAll();
    const std::vector<Started> now = TakeLog();
    ASSERT_EQ(now.size(), 1U);
    started.push_back(now[0]);
    (now[0].key == 1 ? back : front).NotifyFinish(now[0].index, Status::Ok());
  }
  EXPECT_EQ(started, (std::vector<Started>{{1, 0, 0, 100},
                                           {1, 1, 0, 100},
                                           {2, 0, 0, 100},
                                           {2, 1, 0, 100},
                                           {2, 2, 0, 100},
                                           {1, 2, 0, 100},
                                           {1, 3, 0, 100}}));
}

TEST_F(CoreTest, HalfOfTheTensorsOfOnePartitionGoEarly) {
  RecordingTask odd({.key = 1, .priority = -9, .size_bytes = 100}, &log_);
  RecordingTask even({.key = 2, .priority = -9, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&odd, &even});
  EXPECT_EQ(odd.PriorityOf(0), kEarlyPriority);
  EXPECT_EQ(even.PriorityOf(0), -9);
  defer_.RunAll();
  for (RecordingTask* task : {&odd, &even}) task->NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, OfALargeTensorOnlySoManyBytesGoEarly) {
  options_.early_bytes = 250;
  RecordingTask large({.key = 1, .priority = -9, .size_bytes = 1000}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&large);
  EXPECT_EQ(large.PriorityOf(1), kEarlyPriority);
  EXPECT_EQ(large.PriorityOf(2), -9);
  core.FailAll(Status::Cancelled("end of test"));
}

TEST_F(CoreTest, TensorThatTheCallerMarksAsUrgentGoesBeforeFirstHalves) {
  options_.credit_bytes = 100;
  RecordingTask back({.key = 1, .priority = -9, .size_bytes = 200}, &log_);
  RecordingTask urgent({.key = 2, .priority = 5, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  for (RecordingTask* task : {&back, &urgent}) {
    core.Add(task);
    task->NotifyReady();
  }
  EXPECT_EQ(urgent.PriorityOf(0), 5);
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{2, 0, 0, 100}}));
  core.FailAll(Status::Cancelled("end of test"));
  urgent.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, SmallTensorsGoBeforeFirstHalves) {
  options_.credit_bytes = 100;
  options_.small_tensor_bytes = 50;
  RecordingTask back({.key = 1, .priority = -9, .size_bytes = 200}, &log_);
  RecordingTask small({.key = 2, .priority = -7, .size_bytes = 50}, &log_);
  RecordingTask marked({.key = 3, .priority = 5, .size_bytes = 100}, &log_);
  RecordingTask usual({.key = 5, .priority = -1, .size_bytes = 60}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&back, &small, &marked, &usual});
  std::map<Key, RecordingTask*> tasks{{1, &back}, {2, &small}, {3, &marked}, {5, &usual}};
  std::vector<Key> order;
  for (int i = 0; i < 5; ++i) {
    defer_.RunAll();
    for (const Started& now : TakeLog()) {
      order.push_back(now.key);
      tasks[now.key]->NotifyFinish(now.index, Status::Ok());
    }
  }
  EXPECT_EQ(order, (std::vector<Key>{3, 2, 1, 5, 1})) << "first what the caller marks as urgent";
}

TEST_F(CoreTest, CodesOfALargeTensorAreNoSmallTensor) {
  options_.small_tensor_bytes = 50;
  EXPECT_EQ(PriorityOfOnly({.key = 2, .priority = -9, .size_bytes = 50}), kSmallTensorPriority);
  EXPECT_EQ(PriorityOfOnly({.key = 2, .priority = -9, .size_bytes = 50, .value_bytes = 400}), -9);
}

TEST_F(CoreTest, SmallTensorsKeepTheirPriorityWhereNothingGoesEarly) {
  options_.early_bytes = 0;
  options_.small_tensor_bytes = 50;
  EXPECT_EQ(PriorityOfOnly({.key = 1, .priority = -9, .size_bytes = 50}), -9);
}

TEST_F(CoreTest, WithoutTheFirstHalfAllGoByPriority) {
  options_.credit_bytes = 100;
  options_.early_bytes = 0;
  RecordingTask back({.key = 1, .priority = -9, .size_bytes = 200}, &log_);
  RecordingTask front({.key = 2, .priority = -1, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&back, &front});
  EXPECT_EQ(back.PriorityOf(0), -9);
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{2, 0, 0, 100}}));
  core.FailAll(Status::Cancelled("end of test"));
  front.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, StartingIsDeferredOnceForManyReasons) {
  std::vector<std::unique_ptr<RecordingTask>> tasks;
  Core core(options_, defer_.fn());
  for (Key key = 0; key < 5; ++key) {
    tasks.push_back(
        std::make_unique<RecordingTask>(RecordingOptions{.key = key, .size_bytes = 10}, &log_));
    core.Add(tasks.back().get());
    tasks.back()->NotifyReady();
  }
  EXPECT_EQ(defer_.size(), 1U);
  defer_.RunAll();
  EXPECT_EQ(log_.size(), 5U);
  for (const auto& task : tasks) task->NotifyFinish(0, Status::Ok());
  EXPECT_EQ(defer_.size(), 0U);  // nothing queued, nothing to run
}

TEST_F(CoreTest, PartitionLargerThanTheCreditGoesAlone) {
  options_.credit_bytes = 30;
  RecordingTask task({.key = 1, .size_bytes = 200}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&task);
  task.NotifyReady();
  defer_.RunAll();
  EXPECT_EQ(log_.size(), 1U);
  task.NotifyFinish(0, Status::Ok());
  defer_.RunAll();
  EXPECT_EQ(log_.size(), 2U);
  task.NotifyFinish(1, Status::Ok());
  EXPECT_TRUE(task.finished->ok());
}

TEST_F(CoreTest, FailedPartitionFailsItsTaskWhenNothingIsOutstanding) {
  RecordingTask task({.key = 1, .size_bytes = 500}, &log_);
  RecordingTask other({.key = 2, .priority = -1, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&task);
  core.Add(&other);
  task.NotifyReady();
  other.NotifyReady();
  defer_.RunAll();
  TakeLog();
  task.NotifyFinish(0, Status::Unavailable("server 0 is gone"));
  EXPECT_EQ(task.times_finished, 0);  // partition 1 is outstanding
  EXPECT_EQ(core.queued(0), 1U);      // only the other task's
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{2, 0, 0, 100}}));
  task.NotifyFinish(1, Status::Internal("later errors are dropped"));
  ASSERT_EQ(task.times_finished, 1);
  EXPECT_EQ(task.finished->ToString(), "kUnavailable: server 0 is gone");
  other.NotifyFinish(0, Status::Ok());
  EXPECT_TRUE(other.finished->ok());
}

TEST_F(CoreTest, RemovedHeadMakesWayOnOtherServersAtOnce) {
  options_.num_servers = 2;
  options_.credit_bytes = 150;
  // On server 1: key 2 is in flight, then key 1's second partition does not fit and holds key 3
  // back.
  RecordingTask failing({.key = 1, .priority = 5, .size_bytes = 200, .num_servers = 2}, &log_);
  RecordingOptions on_one{
      .key = 2, .priority = 9, .size_bytes = 100, .first_server = 1, .num_servers = 2};
  RecordingTask first(on_one, &log_);
  on_one.key = 3;
  on_one.priority = 0;
  on_one.size_bytes = 50;
  RecordingTask last(on_one, &log_);
  Core core(options_, defer_.fn());
  for (RecordingTask* task : {&failing, &first, &last}) {
    core.Add(task);
    task->NotifyReady();
  }
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{1, 0, 0, 100}, {2, 0, 1, 100}}));
  failing.NotifyFinish(0, Status::Unavailable("server 0 is gone"));
  EXPECT_EQ(failing.times_finished, 1);
  defer_.RunAll();
  EXPECT_EQ(TakeLog(), (std::vector<Started>{{3, 0, 1, 50}}));
  first.NotifyFinish(0, Status::Ok());
  last.NotifyFinish(0, Status::Ok());
}

TEST_F(CoreTest, FailAllEndsTasksAsSoonAsNothingOfThemIsOutstanding) {
  RecordingTask running({.key = 1, .size_bytes = 500}, &log_);
  RecordingTask queued({.key = 2, .priority = -1, .size_bytes = 100}, &log_);
  RecordingTask unready({.key = 3, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  for (RecordingTask* task : {&running, &queued, &unready}) core.Add(task);
  running.NotifyReady();
  queued.NotifyReady();
  defer_.RunAll();
  core.FailAll(Status::Unavailable("worker 1 is gone"));
  EXPECT_EQ(running.times_finished, 0);
  EXPECT_EQ(queued.times_finished, 1);
  EXPECT_EQ(unready.times_finished, 1);
  EXPECT_EQ(core.queued(0), 0U);
  TakeLog();
  running.NotifyFinish(0, Status::Ok());
  running.NotifyFinish(1, Status::Ok());
  EXPECT_EQ(running.times_finished, 1);
  for (RecordingTask* task : {&running, &queued, &unready}) {
    EXPECT_EQ(task->finished->ToString(), "kUnavailable: worker 1 is gone");
  }
  defer_.RunAll();
  EXPECT_TRUE(log_.empty());
  EXPECT_EQ(core.in_flight_bytes(0), 0U);
}

TEST_F(CoreTest, TaskAddedAfterFailAllFailsButNotInsideTheCall) {
  RecordingTask late({.key = 1, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.FailAll(Status::Cancelled("closed"));
  core.FailAll(Status::Internal("the first reason counts"));
  core.Add(&late);
  late.NotifyReady();
  EXPECT_EQ(late.times_finished, 0);
  defer_.RunAll();
  ASSERT_EQ(late.times_finished, 1);
  EXPECT_EQ(late.finished->ToString(), "kCancelled: closed");
  EXPECT_TRUE(log_.empty());
}

TEST_F(CoreTest, FailAllTwiceEndsEachTaskOnce) {
  RecordingTask running({.key = 1, .size_bytes = 100}, &log_);
  RecordingTask late({.key = 2, .size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  core.Add(&running);
  running.NotifyReady();
  defer_.RunAll();
  core.FailAll(Status::Cancelled("first"));
  core.Add(&late);
  core.FailAll(Status::Cancelled("second"));
  EXPECT_EQ(late.times_finished, 1);
  defer_.RunAll();
  running.NotifyFinish(0, Status::Ok());
  EXPECT_EQ(late.times_finished, 1);
  EXPECT_EQ(running.times_finished, 1);
  EXPECT_EQ(running.finished->message(), "first");
}

TEST_F(CoreTest, TaskMayBeDestroyedWhenItIsFinished) {
  auto task = std::make_unique<RecordingTask>(RecordingOptions{.size_bytes = 100}, &log_);
  Core core(options_, defer_.fn());
  int finished = 0;
  task->on_finished = [&] {
    ++finished;
    task.reset();
  };
  core.Add(task.get());
  task->NotifyReady();
  defer_.RunAll();
  task->NotifyFinish(0, Status::Ok());
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(task, nullptr);
}

TEST_F(CoreTest, TasksMayDestroyThemselvesAndAddTasksInsideFailAll) {
  std::map<Key, std::unique_ptr<RecordingTask>> tasks;
  Core core(options_, defer_.fn());
  std::vector<Key> finished;
  std::function<void(Key)> add = [&](Key key) {
    tasks[key] =
        std::make_unique<RecordingTask>(RecordingOptions{.key = key, .size_bytes = 10}, &log_);
    tasks[key]->on_finished = [&, key] {
      finished.push_back(key);
      if (key < 10) add(key + 10);
      const auto self = tasks.extract(key);
    };
    core.Add(tasks[key].get());
  };
  for (Key key = 0; key < 3; ++key) add(key);
  core.FailAll(Status::Cancelled("closed"));
  EXPECT_EQ(finished, (std::vector<Key>{0, 1, 2}));  // in the order of Add
  defer_.RunAll();
  EXPECT_EQ(finished, (std::vector<Key>{0, 1, 2, 10, 11, 12}));
  EXPECT_TRUE(tasks.empty());
}

TEST_F(CoreTest, StartMayFinishAtOnce) {
  auto task = std::make_unique<RecordingTask>(RecordingOptions{.size_bytes = 500}, &log_);
  Core core(options_, defer_.fn());
  task->on_start = [&](const Partition& partition) {
    task->NotifyFinish(partition.index, Status::Ok());
  };
  int finished = 0;
  task->on_finished = [&] { ++finished; };
  core.Add(task.get());
  task->NotifyReady();
  defer_.RunAll();
  EXPECT_EQ(log_.size(), 5U);
  EXPECT_EQ(finished, 1);
}

TEST_F(CoreTest, MayBeDestroyedByItsLastTaskInsideARun) {
  RecordingTask task({.size_bytes = 100}, &log_);
  auto core = std::make_unique<Core>(options_, defer_.fn());
  task.on_start = [&](const Partition& partition) {
    task.NotifyFinish(partition.index, Status::Ok());
  };
  task.on_finished = [&] { core.reset(); };
  core->Add(&task);
  task.NotifyReady();
  defer_.RunAll();
  EXPECT_EQ(core, nullptr);
}

TEST_F(CoreTest, MayBeDestroyedByATaskThatCameTooLate) {
  RecordingTask late({.size_bytes = 100}, &log_);
  auto core = std::make_unique<Core>(options_, defer_.fn());
  late.on_finished = [&] { core.reset(); };
  core->FailAll(Status::Cancelled("closed"));
  core->Add(&late);
  defer_.RunAll();
  EXPECT_EQ(core, nullptr);
  EXPECT_EQ(late.times_finished, 1);
}

TEST_F(CoreTest, ADroppedTaskEndsWithoutTheCreditThatItWaitsFor) {
  RecordingTask first({.key = 1, .size_bytes = 200}, &log_);
  RecordingTask queued({.key = 2, .size_bytes = 300}, &log_);
  RecordingTask begun({.key = 3, .size_bytes = 300}, &log_);
  Core core(options_, defer_.fn());
  AddReady(&core, {&first, &queued});
  defer_.RunAll();
  const Status dropped = Status::Cancelled("dropped");
  core.Drop(&queued, dropped);
  EXPECT_EQ(queued.finished->message(), "dropped");
  EXPECT_EQ(core.queued(0), 0U);
  core.Drop(&queued, dropped);
  AddReady(&core, {&begun});
  first.NotifyFinish(0, Status::Ok());
  defer_.RunAll();
  core.Drop(&begun, dropped);
  EXPECT_EQ(begun.times_finished, 0) << "a partition is under way";
  begun.NotifyFinish(0, Status::Ok());
  EXPECT_EQ(begun.finished->message(), "dropped");
  first.NotifyFinish(1, Status::Ok());
  EXPECT_EQ(queued.times_finished, 1);
}

TEST_F(CoreTest, DeferredRunOfADestroyedCoreDoesNothing) {
  RecordingTask task({.size_bytes = 100}, &log_);
  {
    Core core(options_, defer_.fn());
    core.Add(&task);
    task.NotifyReady();
    core.FailAll(Status::Cancelled("closed"));
  }
  EXPECT_EQ(defer_.size(), 1U);
  defer_.RunAll();
  EXPECT_TRUE(log_.empty());
}

}  // namespace
}  // namespace bs
