// Which tensor is the most urgent is learned from each step for the next.
#include "trace/front.h"

#include <algorithm>

namespace bs::worker {

void Front::Ready(Key key, Priority priority, TimePoint now) {
  if (front_ && ready_ > kFrozen * a_step_) *this = {};  // it is in use no more
  if (!front_ && first_ == key) Look();
  if (!front_ && !first_) first_ = key;
  ++ready_;
  last_ready_ = now;
  if (!urgent_ || priority > urgent_->priority) urgent_ = {key, priority};
}

std::optional<TimePoint> Front::Summed(Key key, TimePoint now) {
  if (front_ != key || !urgent_) return std::nullopt;
  const TimePoint since = std::min(last_ready_, now);
  Look();
  return since;
}

void Front::Look() {
  if (!urgent_) return;
  front_ = urgent_->key;
  a_step_ = ready_;
  urgent_.reset();
  ready_ = 0;
}

}  // namespace bs::worker
