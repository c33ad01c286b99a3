// Trace: a ring with one writer and one reader.
#include "trace/trace.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace bs::trace {

Trace::Trace(size_t capacity, std::function<void()> wake)
    : capacity_(capacity),
      wake_(std::move(wake)),
      events_(std::make_unique<TraceEvent[]>(capacity)) {
  BS_CHECK(capacity >= 4 && std::has_single_bit(capacity));
}

Trace::~Trace() = default;

void Trace::Record(const TraceEvent& event) {
  const uint64_t index = recorded_.load(std::memory_order_relaxed);
  if (index - known_taken_ == capacity_) {
    known_taken_ = taken_.load(std::memory_order_acquire);
    if (index - known_taken_ == capacity_) {
      lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
  }
  events_[index & (capacity_ - 1)] = event;
  recorded_.store(index + 1, std::memory_order_release);
  if (wake_ && (index + 1) % (capacity_ / 4) == 0) wake_();
}

bool Trace::Take(TraceEvent* event) {
  const uint64_t index = taken_.load(std::memory_order_relaxed);
  if (index == recorded_.load(std::memory_order_acquire)) return false;
  *event = events_[index & (capacity_ - 1)];
  taken_.store(index + 1, std::memory_order_release);
  return true;
}

}  // namespace bs::trace
