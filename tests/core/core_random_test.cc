// Core under random tasks, acknowledgements and failures: what must always hold, does.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/core.h"
#include "core/recording_task.h"

namespace bs {
namespace {

class CoreSeeds : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kServers = 3;
  CoreSeeds() : random_(GetParam()) {}

  void AddTask() {
    const RecordingOptions options{.key = next_key_++,
                                   .priority = static_cast<Priority>(random_() % 7),
                                   .size_bytes = random_() % 700,
                                   .first_server = static_cast<uint32_t>(random_() % kServers),
                                   .num_servers = kServers};
    tasks_.push_back(std::make_unique<RecordingTask>(options, &log_));
    RecordingTask* const task = tasks_.back().get();
    task->on_start = [this, task](const Partition& p) { flight_.emplace_back(task, p.index); };
    core_.Add(task);
    unready_.push_back(task);
  }
  void MakeReady() {
    if (unready_.empty()) return;
    const size_t i = random_() % unready_.size();
    std::swap(unready_[i], unready_.back());
    unready_.back()->NotifyReady();
    unready_.pop_back();
  }
  void Reprioritise() {
    if (tasks_.empty()) return;
    core_.Reprioritise(tasks_[random_() % tasks_.size()].get(),
                       static_cast<Priority>(random_() % 7));
  }
  void Acknowledge(bool ok) {
    if (flight_.empty()) return;
    const size_t i = random_() % flight_.size();
    std::swap(flight_[i], flight_.back());
    const auto [task, index] = flight_.back();
    flight_.pop_back();
    task->NotifyFinish(index, ok ? Status::Ok() : Status::Unavailable("lost"));
    if (!ok) ++failures_;
  }
  void Step() {
    const uint64_t choice = random_() % 100;
    if (choice < 25)
      AddTask();
    else if (choice < 50)
      MakeReady();
    else if (choice < 70)
      defer_.RunAll();
    else if (choice < 75)
      Reprioritise();
    else
      Acknowledge(choice > 76);
  }
  void CheckCredit() const {
    for (uint32_t server = 0; server < kServers; ++server) {
      ASSERT_LE(core_.in_flight_bytes(server), 250U + 31U) << "the credit, its reserve besides";
    }
  }
  void Finish() {
    while (!unready_.empty()) MakeReady();
    defer_.RunAll();
    while (!flight_.empty()) {
      Acknowledge(true);
      defer_.RunAll();
    }
  }

  std::mt19937 random_;
  Key next_key_ = 0;
  int failures_ = 0;
  ManualDefer defer_;
  std::vector<Started> log_;
  std::vector<std::unique_ptr<RecordingTask>> tasks_;
  std::vector<RecordingTask*> unready_;
  std::vector<std::pair<RecordingTask*, uint32_t>> flight_;
  Core core_{{.num_servers = kServers, .partition_bytes = 100, .credit_bytes = 250}, defer_.fn()};
};

TEST_P(CoreSeeds, CreditIsBoundedAndEachTaskFinishesOnce) {
  for (int i = 0; i < 3000; ++i) {
    Step();
    CheckCredit();
    ASSERT_FALSE(HasFatalFailure()) << "seed " << GetParam() << " step " << i;
  }
  Finish();
  EXPECT_EQ(core_.num_tasks(), 0U);
  EXPECT_GT(failures_, 0);
  size_t started = 0;
  for (const auto& task : tasks_) {
    EXPECT_EQ(task->times_finished, 1) << "seed " << GetParam() << " key " << task->key();
    if (task->finished->ok()) started += task->partitions().size();
  }
  EXPECT_GE(log_.size(), started);
  for (uint32_t server = 0; server < kServers; ++server) {
    EXPECT_EQ(core_.in_flight_bytes(server), 0U);
    EXPECT_EQ(core_.queued(server), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoreSeeds, ::testing::Range(1U, 21U));

}  // namespace
}  // namespace bs
