// Counts the rounds of the largest tensor.
#include "worker/steps.h"

namespace bs::worker {

void Steps::Summed(Key key, uint64_t size_bytes, TimePoint now) {
  ++tensors_;
  if (count_ > 0 && key != largest_) {
    if (size_bytes <= largest_bytes_) return;
    // One that comes later in the first step; or of another model, whose steps count on.
    --count_;
    end_ = {};
  }
  latest_ = end_ == TimePoint() ? Duration() : now - end_;
  largest_ = key;
  largest_bytes_ = size_bytes;
  end_ = now;
  ++count_;
}

}  // namespace bs::worker
