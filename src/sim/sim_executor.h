// SimExecutor: simulated time for a whole cluster in one thread.
//
// A SimClock knows the SimExecutors, each one simulated thread, and runs the task that is due next.
// Which of several executors goes first at the same moment is drawn from the seed at every step;
// the tasks of one executor keep the order of posting.  Nothing here blocks or sleeps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/executor.h"

namespace bs::sim {

class SimExecutor;

// Not thread-safe.
class SimClock {
 public:
  explicit SimClock(uint64_t seed) : random_(seed) {}
  SimClock(const SimClock&) = delete;
  SimClock& operator=(const SimClock&) = delete;
  // REQUIRES: no executor is left.
  ~SimClock();

  TimePoint Now() const { return now_; }
  // Runs the next due task and moves the time to it, never back.  False if nothing is left.
  bool Step();
  // Steps until `deadline` or until nothing is left, then moves the time to `deadline` (unless it
  // is TimePoint::max()); returns the number of tasks run.
  uint64_t RunUntil(TimePoint deadline);
  // Moves the time on while no thread gets to run: due tasks run late.
  void Skip(Duration duration) { now_ += duration; }
  // Uniform in [low, high].
  uint64_t Uniform(uint64_t low, uint64_t high);
  bool Chance(double probability);
  // A number that changes with every task run: equal for equal seeds.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  friend class SimExecutor;
  // The executor whose head is due first, drawn among equals; null if nothing is left.
  SimExecutor* DrawNext();

  TimePoint now_{};
  TimerId next_id_ = 1;
  uint64_t next_executor_ = 1;
  uint64_t trace_hash_ = 1469598103934665603ULL;
  std::mt19937_64 random_;
  uint64_t executors_ = 0;  // that are there
  // Executors with a task in their queue, by the time when its head is due, then by number, so that
  // no address decides the order.
  std::map<std::pair<TimePoint, uint64_t>, SimExecutor*> heads_;
  std::vector<SimExecutor*> candidates_;  // DrawNext's, kept for its memory
};

class SimExecutor final : public Executor {
 public:
  // `clock` must outlive the executor.
  explicit SimExecutor(SimClock* clock);
  // Destroys the tasks still queued.  REQUIRES: not inside a task of this executor.
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
  using Position = std::pair<TimePoint, TimerId>;
  // Takes the head out and runs it; returns its id.
  TimerId RunHead();
  // Tells the clock when the head of the queue is due, if that is another time than before.
  void TellClock();

  SimClock* const clock_;
  const uint64_t number_;
  std::map<Position, Task> queue_;
  std::unordered_map<TimerId, TimePoint> due_;  // of everything in queue_
  std::optional<TimePoint> told_;               // the clock: when the head is due
  bool current_ = false;
};

}  // namespace bs::sim
