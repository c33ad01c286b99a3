// Memory of one round's sum that counts the frames showing it.
#include "server/sum_buffer.h"

#include <algorithm>
#include <span>

namespace bs::server {

SumBuffer::SumBuffer(uint64_t size_bytes, int numa_node, int32_t num_workers)
    : memory_(size_bytes, numa_node), frames_(static_cast<size_t>(num_workers)) {}

ps::Frame SumBuffer::MakeFrame(int32_t rank) {
  const auto whose = static_cast<size_t>(rank);
  frames_[whose].fetch_add(1, std::memory_order_relaxed);
  return ps::Frame::Borrow({memory_.data(), memory_.size_bytes()},
                           [self = shared_from_this(), whose] {
                             self->frames_[whose].fetch_sub(1, std::memory_order_release);
                           });
}

bool SumBuffer::InFlight() const {
  return std::any_of(frames_.begin(), frames_.end(), [](const std::atomic<uint32_t>& frames) {
    return frames.load(std::memory_order_acquire) != 0;
  });
}

}  // namespace bs::server
