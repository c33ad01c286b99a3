// RunOn: a task on another executor, as if it were a call.
#pragma once

#include "base/executor.h"
#include "base/notification.h"

namespace bs {

// Runs `task` on `executor` and blocks until it has run.  REQUIRES: not called on `executor`, which
// is not ended meanwhile.
inline void RunOn(Executor* executor, Task task) {
  Notification ran;
  executor->Post([&] {
    task();
    ran.Notify();
  });
  ran.Wait();
}

}  // namespace bs
