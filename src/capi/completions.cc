// Hands tokens out in the order in which they came.
#include "capi/completions.h"

#include <algorithm>

namespace bs::capi {

void CompletionQueue::Add(uint64_t token) {
  const MutexLock lock(&mutex_);
  tokens_.push_back(token);
  wakes_ = true;
  changed_.NotifyAll();
}

size_t CompletionQueue::Wait(Duration timeout, std::span<uint64_t> tokens) {
  const MutexLock lock(&mutex_);
  changed_.WaitForTrue(&mutex_, timeout, wakes_);
  const size_t count = std::min(tokens.size(), tokens_.size());
  const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(tokens_.begin(), end, tokens.begin());
  tokens_.erase(tokens_.begin(), end);
  wakes_ = !tokens_.empty();
  return count;
}

void CompletionQueue::Wake() {
  const MutexLock lock(&mutex_);
  wakes_ = true;
  changed_.NotifyAll();
}

}  // namespace bs::capi
