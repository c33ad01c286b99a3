// Learns in each step which tensor is the most urgent in the next step.
#include "trace/critical_tensor.h"

#include <algorithm>

namespace bs::trace {

void CriticalTensor::Ready(Key key, Priority priority, TimePoint now) {
  if (key >= kFirstBookkeepingKey) return;
  if (critical_ && ready_ > kFrozen * a_step_) *this = {};  // it is in use no more
  if (!critical_ && first_ == key) EndStep();
  if (!critical_ && !first_) first_ = key;
  ++ready_;
  last_ready_ = now;
  if (!urgent_ || priority > urgent_->priority) urgent_ = {key, priority};
}

std::optional<TimePoint> CriticalTensor::Summed(Key key, TimePoint now) {
  if (critical_ != key || !urgent_) return std::nullopt;
  const TimePoint since = std::min(last_ready_, now);
  EndStep();
  return since;
}

void CriticalTensor::EndStep() {
  if (!urgent_) return;
  critical_ = urgent_->key;
  a_step_ = ready_;
  urgent_.reset();
  ready_ = 0;
}

}  // namespace bs::trace
