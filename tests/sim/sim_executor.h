// SimExecutor: simulated time for a whole cluster in one thread.
//
// A SimClock owns the queue of everything that will happen; each SimExecutor is one simulated thread
// on it.  Tasks that are due at the same moment run in an order drawn from the seed, except that
// the tasks of one executor keep the order of posting.  Nothing here blocks or sleeps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/executor.h"

namespace bs::sim {

class SimExecutor;

// Not thread-safe.
class SimClock {
 public:
  explicit SimClock(uint64_t seed) : random_(seed) {}

  TimePoint Now() const { return now_; }
  // Runs the next due task and moves the time to it.  False if nothing is left.
  bool Step();
  // Steps until `deadline` passed or nothing is left; returns the number of tasks run.
  uint64_t RunUntil(TimePoint deadline);
  // Uniform in [low, high].
  uint64_t Uniform(uint64_t low, uint64_t high);
  bool Chance(double probability);
  // A number that changes with every task run: equal for equal seeds.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  friend class SimExecutor;
  struct Entry {
    SimExecutor* executor;
    TimerId id;
    Task task;
  };
  TimerId Add(SimExecutor* executor, TimePoint when, Task task);

  TimePoint now_{};
  TimerId next_id_ = 1;
  uint64_t trace_hash_ = 1469598103934665603ULL;
  std::mt19937_64 random_;
  // Ordered by time, then by a tie-break drawn from the seed, then by id.
  std::map<std::tuple<TimePoint, uint64_t, TimerId>, Entry> queue_;
  std::unordered_map<TimerId, std::tuple<TimePoint, uint64_t, TimerId>> where_;
};

class SimExecutor final : public Executor {
 public:
  // `clock` must outlive the executor.
  explicit SimExecutor(SimClock* clock);
  ~SimExecutor() override;
  SimExecutor(const SimExecutor&) = delete;
  SimExecutor& operator=(const SimExecutor&) = delete;

  TimePoint Now() const override { return clock_->Now(); }
  void Post(Task task) override;
  TimerId PostAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;
  bool IsCurrent() const override { return current_; }

 private:
  friend class SimClock;
  SimClock* const clock_;
  const uint64_t tie_break_;  // one for each executor, so that its own tasks keep their order
  bool current_ = false;
};

}  // namespace bs::sim
