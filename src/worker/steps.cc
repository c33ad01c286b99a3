// Counts the rounds of the largest tensor that is in use.
#include "worker/steps.h"

#include <algorithm>

namespace bs::worker {

void Steps::Summed(Key key, uint64_t size_bytes, TimePoint now) {
  ++tensors_;
  if (count_ > 0 && key != largest_) {
    if (OutOfUse(key)) {
      end_ = {};
    } else if (size_bytes > largest_bytes_) {
      // One that comes later in the first step; or of another model, whose steps count on.
      --count_;
      end_ = {};
    } else {
      return;
    }
  }
  latest_ = end_ == TimePoint() ? Duration() : now - end_;
  witnessed_ = 0;
  largest_ = key;
  largest_bytes_ = size_bytes;
  end_ = now;
  ++count_;
  lengths_[count_ % kKept] = latest_;
}

bool Steps::OutOfUse(Key key) {
  if (witnessed_ == 0) witness_ = key;
  if (key == witness_) ++witnessed_;
  return witnessed_ > kFrozen;
}

std::vector<StepTime> Steps::kept() const {
  std::vector<StepTime> kept;
  for (uint64_t i = count_ - std::min(count_, kKept) + 1; i <= count_; ++i) {
    const Duration length = lengths_[i % kKept];
    if (length > Duration()) kept.push_back({i, length});
  }
  return kept;
}

}  // namespace bs::worker
