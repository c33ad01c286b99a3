#include "sim/sim_executor.h"

#include <vector>

namespace bs::sim {

TimerId SimClock::Add(SimExecutor* executor, TimePoint when, Task task) {
  const TimerId id = next_id_++;
  const auto position = std::make_tuple(std::max(when, now_), executor->tie_break_, id);
  queue_.emplace(position, Entry{executor, id, std::move(task)});
  where_.emplace(id, position);
  return id;
}

bool SimClock::Step() {
  if (queue_.empty()) return false;
  auto node = queue_.extract(queue_.begin());
  now_ = std::get<0>(node.key());
  Entry entry = std::move(node.mapped());
  where_.erase(entry.id);
  trace_hash_ = (trace_hash_ ^ (entry.id * 31 + static_cast<uint64_t>(now_.time_since_epoch().count()))) *
                1099511628211ULL;
  entry.executor->current_ = true;
  SimExecutor* executor = entry.executor;
  entry.task();
  executor->current_ = false;
  return true;
}

uint64_t SimClock::RunUntil(TimePoint deadline) {
  uint64_t steps = 0;
  while (!queue_.empty() && std::get<0>(queue_.begin()->first) <= deadline) {
    Step();
    ++steps;
  }
  now_ = std::max(now_, deadline);
  return steps;
}

uint64_t SimClock::Uniform(uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random_);
}

bool SimClock::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

SimExecutor::SimExecutor(SimClock* clock) : clock_(clock), tie_break_(clock->Uniform(0, UINT64_MAX)) {}

SimExecutor::~SimExecutor() {
  std::vector<TimerId> mine;
  for (const auto& [position, entry] : clock_->queue_) {
    if (entry.executor == this) mine.push_back(entry.id);
  }
  for (TimerId id : mine) Cancel(id);
}

void SimExecutor::Post(Task task) { clock_->Add(this, clock_->now_, std::move(task)); }

TimerId SimExecutor::PostAt(TimePoint when, Task task) {
  return clock_->Add(this, when, std::move(task));
}

void SimExecutor::Cancel(TimerId id) {
  const auto it = clock_->where_.find(id);
  if (it == clock_->where_.end()) return;
  clock_->queue_.erase(it->second);
  clock_->where_.erase(it);
}

}  // namespace bs::sim
