// Executor: a thread and its clock, behind a single interface.
//
// Every object with state belongs to an executor and is touched only from tasks that run on it;
// other threads post.  Tasks of one executor run one at a time: tasks of Post() in the order of
// posting, tasks of PostAt() when due, ties in the order of posting.  A task runs exactly once, or
// is destroyed without running when it is cancelled or the executor ends.
//
// Implementations: LoopThread (a real thread and the monotonic clock) and the simulator's
// SimExecutor (one thread for the whole cluster, seeded, simulated clock).
#pragma once

#include <cstdint>

#include "base/types.h"
#include "base/unique_function.h"

namespace bs {

using Task = UniqueFunction<void()>;
using TimerId = uint64_t;  // 0 is no timer

class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  // All methods are thread-safe and never block.

  virtual TimePoint Now() const = 0;
  // Runs `task` soon, never inside this call.
  virtual void Post(Task task) = 0;
  // Runs `task` at `when` or soon after, never inside this call.  Never returns 0.
  virtual TimerId PostAt(TimePoint when, Task task) = 0;
  // The task will not start after this returns if called on this executor; from elsewhere it may
  // already be running.  Unknown or spent ids are ignored.
  virtual void Cancel(TimerId id) = 0;
  // True inside a task of this executor.
  virtual bool IsCurrent() const = 0;
};

}  // namespace bs
