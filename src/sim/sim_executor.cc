// SimExecutor: the queue of each simulated thread, and the clock that draws among them.
#include "sim/sim_executor.h"

#include <algorithm>

#include "base/check.h"

namespace bs::sim {

SimClock::~SimClock() { BS_CHECK(executors_ == 0); }

SimExecutor* SimClock::DrawNext() {
  if (heads_.empty()) return nullptr;
  const TimePoint soonest = heads_.begin()->first.first;
  candidates_.clear();
  for (const auto& [when, executor] : heads_) {
    if (when.first > soonest) break;
    candidates_.push_back(executor);
  }
  if (candidates_.size() == 1) return candidates_.front();
  return candidates_.at(Uniform(0, candidates_.size() - 1));
}

bool SimClock::Step() {
  SimExecutor* const executor = DrawNext();
  if (executor == nullptr) return false;
  now_ = std::max(now_, executor->queue_.begin()->first.first);
  const uint64_t number = executor->number_;
  const TimerId id = executor->RunHead();
  for (const uint64_t part : {number, id, static_cast<uint64_t>(now_.time_since_epoch().count())}) {
    trace_hash_ = (trace_hash_ ^ part) * 1099511628211ULL;
  }
  return true;
}

uint64_t SimClock::RunUntil(TimePoint deadline) {
  uint64_t steps = 0;
  while (!heads_.empty() && heads_.begin()->first.first <= deadline) {
    Step();
    ++steps;
  }
  if (deadline != TimePoint::max()) now_ = std::max(now_, deadline);
  return steps;
}

uint64_t SimClock::Uniform(uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random_);
}

bool SimClock::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

SimExecutor::SimExecutor(SimClock* clock) : clock_(clock), number_(clock->next_executor_++) {
  ++clock_->executors_;
}

SimExecutor::~SimExecutor() {
  BS_CHECK(!current_);
  --clock_->executors_;
  // One by one: the captures of a task may post or cancel while they are destroyed.
  while (!queue_.empty()) {
    const auto unrun = queue_.extract(queue_.begin());
    due_.erase(unrun.key().second);
    TellClock();
  }
}

void SimExecutor::TellClock() {
  std::optional<TimePoint> head;
  if (!queue_.empty()) head = queue_.begin()->first.first;
  if (head == told_) return;
  if (told_) clock_->heads_.erase({*told_, number_});
  if (head) clock_->heads_.emplace(std::pair(*head, number_), this);
  told_ = head;
}

void SimExecutor::Post(Task task) { PostAt(clock_->now_, std::move(task)); }

TimerId SimExecutor::PostAt(TimePoint when, Task task) {
  const Position position{std::max(when, clock_->now_), clock_->next_id_++};
  queue_.emplace(position, std::move(task));
  due_.emplace(position.second, position.first);
  TellClock();
  return position.second;
}

void SimExecutor::Cancel(TimerId id) {
  const auto it = due_.find(id);
  if (it == due_.end()) return;
  const auto unrun = queue_.extract({it->second, id});  // destroyed last: its captures may post
  due_.erase(it);
  TellClock();
}

TimerId SimExecutor::RunHead() {
  auto head = queue_.extract(queue_.begin());
  const TimerId id = head.key().second;
  due_.erase(id);
  TellClock();
  current_ = true;
  head.mapped()();
  head.mapped() = Task();  // captures die on their own executor, as on a LoopThread
  current_ = false;
  return id;
}

}  // namespace bs::sim
