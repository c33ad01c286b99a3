// TaskScope and Repeater: posted tasks and timers that end with their owner.
//
// Confined to the executor, like the owner.  A task posted through a scope runs on the executor
// unless the scope was closed or destroyed before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/executor.h"

namespace ps {

class TaskScope {
 public:
  // `executor` must outlive the scope.
  explicit TaskScope(bs::Executor* executor)
      : executor_(executor), open_(std::make_shared<bool>(true)) {}
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  ~TaskScope() { Close(); }

  bs::TimePoint Now() const { return executor_->Now(); }
  void Post(bs::Task task) { executor_->Post(Bound(std::move(task))); }
  bs::TimerId After(bs::Duration delay, bs::Task task) {
    return executor_->PostAt(Now() + delay, Bound(std::move(task)));
  }
  void Cancel(bs::TimerId id) { executor_->Cancel(id); }
  // No task posted here runs from now on.
  void Close() { *open_ = false; }

 private:
  bs::Task Bound(bs::Task task) {
    return [open = open_, task = std::move(task)] {
      if (*open) task();
    };
  }

  bs::Executor* const executor_;
  const std::shared_ptr<bool> open_;  // shared with the tasks, which may outlive the scope
};

// Calls a function at an interval until stopped.
class Repeater {
 public:
  // `scope` must outlive the repeater.
  explicit Repeater(TaskScope* scope) : scope_(scope) {}
  Repeater(const Repeater&) = delete;
  Repeater& operator=(const Repeater&) = delete;
  ~Repeater() { Stop(); }

  // Calls `act` at the end of each `interval`; the first interval begins now.  Replaces an earlier
  // function.  `act` may call Start and Stop.
  void Start(bs::Duration interval, std::function<void()> act) {
    Stop();
    interval_ = interval;
    act_ = std::make_shared<const std::function<void()>>(std::move(act));
    Arm();
  }
  void Stop() {
    if (timer_ != 0) scope_->Cancel(timer_);
    timer_ = 0;
    act_.reset();
  }

 private:
  void Arm() {
    timer_ = scope_->After(interval_, [this] {
      const auto act = act_;
      (*act)();
      if (act == act_) Arm();
    });
  }

  TaskScope* const scope_;
  bs::Duration interval_{};
  bs::TimerId timer_ = 0;
  // Shared with a running call, which may replace it.
  std::shared_ptr<const std::function<void()>> act_;
};

}  // namespace ps
