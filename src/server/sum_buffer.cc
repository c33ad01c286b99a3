// Memory of one round's sum that counts the frames showing it.
#include "server/sum_buffer.h"

#include <algorithm>
#include <span>

namespace bs::server {

SumBuffer::SumBuffer(uint64_t size_bytes, int numa_node, int32_t num_workers)
    : memory_(size_bytes, numa_node),
      num_workers_(static_cast<uint32_t>(num_workers)),
      more_(num_workers_ > kFew ? std::make_unique<Counter[]>(num_workers_) : nullptr) {}

ps::Frame SumBuffer::MakeFrame(int32_t rank) {
  CounterOf(rank).fetch_add(1, std::memory_order_relaxed);
  return ps::Frame::Borrow({memory_.data(), memory_.size_bytes()},
                           [self = shared_from_this(), rank] {
                             self->CounterOf(rank).fetch_sub(1, std::memory_order_release);
                           });
}

bool SumBuffer::InFlight() const {
  return std::ranges::any_of(counters(), [](const Counter& frames) {
    return frames.load(std::memory_order_acquire) != 0;
  });
}

}  // namespace bs::server
