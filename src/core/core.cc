// Core: the life of a CommTask, from Add to OnFinished, with a queue for each server.
#include "core/core.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/server_queues.h"

namespace bs {

// Invariants:
//  1. A task is in tasks_ from Add until just before its OnFinished.
//  2. Only Run(), from `defer`, starts partitions; at most one Run() is on its way.
//  3. After any call into a task (Start, OnFinished) the task, and the Core if that was the last
//     task, may be gone: nothing of either is touched before `alive_` is asked.
class Core::Impl {
 public:
  Impl(Core* core, const CoreOptions& options, Defer defer)
      : core_(core),
        options_(options),
        defer_(std::move(defer)),
        queues_(options.num_servers, options.credit_bytes, options.shares, options.small_reserve) {
    BS_CHECK(options.partition_bytes > 0);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { BS_CHECK(tasks_.empty()); }

  void Add(CommTask* task) {
    BS_CHECK(task->core_ == nullptr);
    BS_CHECK(task->partitions_.empty());  // a task is for one round
    task->partitions_ = task->Partition(options_.partition_bytes);
    CheckPartitions(*task);
    const size_t count = task->partitions_.size();
    task->precedes_early_ = PrecedesEarly(*task);
    task->num_early_ = NumEarly(*task, count);
    task->core_ = core_;
    task->number_ = next_number_++;
    task->unfinished_ = static_cast<uint32_t>(task->partitions_.size());
    task->states_.assign(task->partitions_.size(), CommTask::State::kWaiting);
    tasks_.emplace(task->number_, task);
    if (failure_.ok()) return;
    task->failure_ = failure_;
    doomed_.push_back(task->number_);
    RequestRun();
  }

  void Ready(CommTask* task) {
    BS_CHECK(!task->ready_);
    task->ready_ = true;
    if (!task->failure_.ok()) return;
    Queue(task);
  }

  void Reprioritise(CommTask* task, Priority priority) {
    if (task->core_ != core_) return;
    const bool moves = options_.priority_order && task->priority_ != priority;
    task->priority_ = priority;
    if (!moves || !task->ready_ || !task->failure_.ok()) return;
    RemoveQueued(*task);
    Queue(task);
  }

  void Finished(CommTask* task, uint32_t index, const Status& status) {
    BS_CHECK(index < task->partitions_.size());
    BS_CHECK(task->states_[index] == CommTask::State::kStarted);
    const bs::Partition& partition = task->partitions_[index];
    task->states_[index] = CommTask::State::kFinished;
    --task->outstanding_;
    --task->unfinished_;
    queues_.Return(partition.server, task->CreditBytes(partition));
    if (!status.ok() && task->failure_.ok()) {
      task->failure_ = status;
      RemoveQueued(*task);  // it is over without them
      RequestRun();         // heads that did not fit may be gone, on any server
    }
    if (queues_.of(partition.server).queued() > 0) RequestRun();
    const bool over = task->failure_.ok() ? task->unfinished_ == 0 : task->outstanding_ == 0;
    if (over) End(task);
  }

  void FailAll(const Status& status) {
    BS_CHECK(!status.ok());
    if (failure_.ok()) failure_ = status;
    queues_.Clear();
    for (const auto& [number, task] : tasks_) {
      if (task->failure_.ok()) task->failure_ = status;
    }
    std::vector<uint64_t> over;
    for (const auto& [number, task] : tasks_) {
      if (task->outstanding_ == 0) over.push_back(number);
    }
    EndAll(over);
  }

  void Drop(CommTask* task, const Status& status) {
    BS_CHECK(!status.ok());
    if (task->core_ != core_ || !task->failure_.ok()) return;
    task->failure_ = status;
    RemoveQueued(*task);
    RequestRun();
    if (task->outstanding_ == 0) End(task);
  }

  void SetCredit(uint64_t credit_bytes) {
    queues_.SetCredit(credit_bytes);
    RequestRun();
  }

  uint64_t in_flight_bytes(uint32_t server) const {
    BS_CHECK(server < queues_.num_servers());
    return queues_.of(server).in_flight_bytes();
  }
  size_t queued(uint32_t server) const {
    BS_CHECK(server < queues_.num_servers());
    return queues_.of(server).queued();
  }
  uint64_t queued_bytes(uint32_t server) const {
    BS_CHECK(server < queues_.num_servers());
    return queues_.of(server).queued_bytes();
  }
  uint64_t credit_bytes() const { return queues_.of(0).credit_bytes(); }
  size_t num_tasks() const { return tasks_.size(); }

 private:
  bool PrecedesEarly(const CommTask& task) const {
    return options_.early_bytes > 0 && !task.keeps_priority_ &&
           task.value_bytes() <= options_.small_tensor_bytes;
  }

  uint32_t NumEarly(const CommTask& task, uint64_t count) const {
    if (task.keeps_priority_ || task.precedes_early_) return 0;
    const uint64_t most =
        options_.early_bytes / std::max<uint64_t>(task.partitions_.front().size_bytes, 1);
    return static_cast<uint32_t>(std::min((count + task.key_ % 2) / 2, most));
  }

  void CheckPartitions(const CommTask& task) const {
    BS_CHECK(!task.partitions_.empty());
    uint32_t index = 0;
    uint64_t offset_bytes = 0;
    for (const bs::Partition& partition : task.partitions_) {
      BS_CHECK(partition.index == index && partition.offset_bytes == offset_bytes);
      BS_CHECK(partition.server < options_.num_servers);
      ++index;
      offset_bytes += partition.size_bytes;
    }
    BS_CHECK(offset_bytes == task.size_bytes_);
  }

  void RequestRun() {
    if (run_requested_) return;
    run_requested_ = true;
    defer_([this, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired()) Run();
    });
  }

  void Run() {
    run_requested_ = false;
    const std::weak_ptr<bool> alive = alive_;
    EndAll(std::exchange(doomed_, {}));
    if (alive.expired()) return;
    // In turns, so that no server's partitions wait behind another server's whole window.
    bool started = true;
    while (started) {
      started = false;
      for (uint32_t i = 0; i < queues_.num_servers(); ++i) {
        const uint32_t server = (i + options_.first_server) % queues_.num_servers();
        const std::optional<core::Item> item = queues_.Next(server);
        if (!item.has_value()) continue;
        started = true;
        StartPartition(*item);
        if (alive.expired()) return;
      }
    }
  }

  static void StartPartition(const core::Item& item) {
    auto* const task = static_cast<CommTask*>(item.token);
    task->states_[item.index] = CommTask::State::kStarted;
    ++task->outstanding_;
    const bs::Partition partition = task->partitions_[item.index];  // outlives the task
    task->Start(partition);
  }

  void Queue(CommTask* task) {
    for (const bs::Partition& partition : task->partitions_) {
      if (task->states_[partition.index] != CommTask::State::kWaiting) continue;
      const Priority priority = options_.priority_order ? task->PriorityOf(partition.index) : 0;
      queues_.Submit(partition.server, {.priority = priority,
                                        .size_bytes = task->CreditBytes(partition),
                                        .token = task,
                                        .index = partition.index});
    }
    RequestRun();
  }

  void RemoveQueued(const CommTask& task) {
    std::vector<bool> asked(queues_.num_servers());
    for (const bs::Partition& partition : task.partitions_) {
      const bool waits = task.states_[partition.index] == CommTask::State::kWaiting;
      if (!waits || asked[partition.server]) continue;
      asked[partition.server] = true;
      queues_.Remove(partition.server, &task);
    }
  }

  // By number: a task that is over early, or destroyed, is just not found any more.
  void EndAll(const std::vector<uint64_t>& numbers) {
    const std::weak_ptr<bool> alive = alive_;
    for (const uint64_t number : numbers) {
      const auto it = tasks_.find(number);
      if (it == tasks_.end()) continue;
      End(it->second);
      if (alive.expired()) return;
    }
  }

  void End(CommTask* task) {
    tasks_.erase(task->number_);
    task->core_ = nullptr;
    const Status status = task->failure_;  // outlives the task
    task->OnFinished(status);
  }

  Core* const core_;
  const CoreOptions options_;
  const Defer defer_;
  // Ours alone; deferred runs and calls in progress hold weak references that tell them of our end.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  core::ServerQueues queues_;
  std::map<uint64_t, CommTask*> tasks_;  // not owned; by number, so in the order of Add
  std::vector<uint64_t> doomed_;         // added after FailAll, to be ended by the next Run()
  uint64_t next_number_ = 1;
  bool run_requested_ = false;
  Status failure_;  // of FailAll
};

Core::Core(const CoreOptions& options, Defer defer)
    : impl_(std::make_unique<Impl>(this, options, std::move(defer))) {}

Core::~Core() = default;

void Core::Add(CommTask* task) { impl_->Add(task); }

void Core::FailAll(const Status& status) { impl_->FailAll(status); }

void Core::Drop(CommTask* task, const Status& status) { impl_->Drop(task, status); }

void Core::Reprioritise(CommTask* task, Priority priority) { impl_->Reprioritise(task, priority); }

void Core::SetCredit(uint64_t credit_bytes) { impl_->SetCredit(credit_bytes); }

uint64_t Core::in_flight_bytes(uint32_t server) const { return impl_->in_flight_bytes(server); }

size_t Core::queued(uint32_t server) const { return impl_->queued(server); }

uint64_t Core::queued_bytes(uint32_t server) const { return impl_->queued_bytes(server); }

uint64_t Core::credit_bytes() const { return impl_->credit_bytes(); }

size_t Core::num_tasks() const { return impl_->num_tasks(); }

void Core::TaskReady(CommTask* task) { impl_->Ready(task); }

void Core::PartitionFinished(CommTask* task, uint32_t index, const Status& status) {
  impl_->Finished(task, index, status);
}

}  // namespace bs
