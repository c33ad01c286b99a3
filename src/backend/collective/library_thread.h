// Parts of a Collective that lets a thread of its own make all calls of a library: the callbacks of
// its sums, its way back to the worker's executor, and the pace of its looks for ended sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/collective/collective.h"
#include "base/executor.h"
#include "base/loop_thread.h"
#include "base/spin.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// The callbacks of operations under way.  Confined to the worker's executor.
class SumCallbacks {
 public:
  using Done = Collective::Done;

  // True if there is a failure: then `done` gets it, in a task of `executor`.
  bool Refuses(Executor* executor, Done* done) const;
  void Add(uint64_t sequence, Done done) { pending_.emplace(sequence, std::move(done)); }
  // Runs the callbacks of operations that have ended well; EndAll may have run some of them.
  void End(const std::vector<uint64_t>& sequences);
  // The first error stays.
  void Fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  const Status& failure() const { return failure_; }
  // REQUIRES: failure() is an error.
  void EndAll();
  // The owner goes: callbacks are dropped.
  void Close();

  bool is_closed() const { return is_closed_; }
  bool empty() const { return pending_.empty(); }
  bool Waits(uint64_t sequence) const { return pending_.contains(sequence); }
  uint64_t num_ended() const { return num_ended_; }  // well

 private:
  std::map<uint64_t, Done> pending_;  // by sequence number
  uint64_t num_ended_ = 0;
  Status failure_;
  bool is_closed_ = false;
};

// Posts from the library's thread to the worker's executor, which may go before the thread does.
class WayBack {
 public:
  explicit WayBack(Executor* executor) : executor_(executor) {}

  // Runs `task` on the executor after `wait`, unless Abandon has run.  The library's thread.
  void Post(Duration wait, Task task);
  // The executor gets no more tasks.  False: it gets one right now, and the thread soon ends.  Any
  // thread; never blocks.
  bool Abandon();

 private:
  enum class Use : uint8_t { kNone, kPosting, kAbandoned };

  Executor* const executor_;
  std::atomic<Use> use_ = Use::kNone;
};

// When to look for ended sums again.  Confined to the library's thread.
class LookPace {
 public:
  // Looks follow each other without a pause for `longest` at most (base/spin.h); 0: never.
  explicit LookPace(Duration longest) : spin_(longest) {}

  // There was work from `begun` until `now`.
  void Worked(TimePoint begun, TimePoint now);
  // Runs `look` on `thread`, at once or a little later.
  void Again(Executor* thread, TimePoint now, Task look) const;
  Duration Idle(TimePoint now) const { return now - idle_since_; }

 private:
  Spin spin_;
  TimePoint idle_since_{};
};

// Leaves a thread behind that the library keeps.  `keeps` holds all that the thread uses, and is
// never called.
void LeaveBehind(std::unique_ptr<LoopThread> thread, Task keeps);

}  // namespace bs::backend::collective
