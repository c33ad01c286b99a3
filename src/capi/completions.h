// CompletionQueue: tokens of operations that have ended, for a thread that waits for many of them.
//
// Thread-safe.  Unbounded: it has as many tokens as operations that its owner has started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "base/types.h"
#include "bytescheduler/c_api.h"

namespace bs::capi {

class CompletionQueue {
 public:
  void Add(uint64_t token);
  // Returns how many tokens it has written; 0 if `timeout` passed, or Wake was called.
  size_t Wait(Duration timeout, std::span<uint64_t> tokens);
  void Wake();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<uint64_t> tokens_ BS_GUARDED_BY(mutex_);
  bool wakes_ BS_GUARDED_BY(mutex_) = false;  // there is a token, or Wake was called
};

}  // namespace bs::capi

struct bs_completions {
  // Owners: this, and the waiters that report to it.
  const std::shared_ptr<bs::capi::CompletionQueue> queue =
      std::make_shared<bs::capi::CompletionQueue>();
};
