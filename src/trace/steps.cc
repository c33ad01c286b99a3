// Counts the rounds of the largest tensor that is in use.
#include "trace/steps.h"

#include <algorithm>

namespace bs::trace {

void Steps::Summed(Key key, uint64_t size_bytes, TimePoint now) {
  ++tensors_;
  if (count_ > 0 && key != largest_) {
    const bool out_of_use = tensors_ - latest_at_ > kFrozen * a_step_;
    if (!out_of_use && size_bytes <= largest_bytes_) return;
    // A larger tensor comes later in the first step, or belongs to another model, whose steps count
    // on.
    if (!out_of_use) --count_;
    end_ = {};
  }
  latest_ = end_ == TimePoint() ? Duration() : now - end_;
  a_step_ = key == largest_ && count_ > 0 ? tensors_ - latest_at_ : std::max(tensors_, kUnknown);
  latest_at_ = tensors_;
  largest_ = key;
  largest_bytes_ = size_bytes;
  end_ = now;
  ++count_;
  lengths_[count_ % kKept] = latest_;
}

std::vector<StepTime> Steps::kept() const {
  std::vector<StepTime> kept;
  for (uint64_t i = count_ - std::min(count_, kKept) + 1; i <= count_; ++i) {
    const Duration length = lengths_[i % kKept];
    if (length > Duration()) kept.push_back({i, length});
  }
  return kept;
}

}  // namespace bs::trace
