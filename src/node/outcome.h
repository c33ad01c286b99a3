// Outcome: how something ended, set once, read by any thread.
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "base/notification.h"
#include "base/status.h"

namespace bs::node {

// Thread-safe.
class Outcome {
 public:
  // Returns true if this call was the first; later calls change nothing.
  bool Set(Status status) {
    if (claimed_.exchange(true)) return false;
    status_ = std::move(status);
    set_.Notify();
    return true;
  }
  // Returns nothing until it is set.
  std::optional<Status> Get() const {
    return set_.HasBeenNotified() ? std::optional(status_) : std::nullopt;
  }
  // Blocks until it is set or `timeout` passed; returns whether it is set.
  bool WaitFor(Duration timeout) const { return set_.WaitFor(timeout); }

 private:
  std::atomic<bool> claimed_ = false;
  Status status_;  // written before, read after set_
  Notification set_;
};

}  // namespace bs::node
