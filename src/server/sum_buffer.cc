// Memory of one round's sum that counts the frames showing it.
#include "server/sum_buffer.h"

#include <span>

namespace bs::server {

SumBuffer::SumBuffer(uint64_t size_bytes, int numa_node)
    : memory_(size_bytes, numa_node), size_bytes_(size_bytes) {}

ps::Frame SumBuffer::MakeFrame() {
  frames_.fetch_add(1, std::memory_order_relaxed);
  return ps::Frame::Borrow({memory_.data(), size_bytes_}, [self = shared_from_this()] {
    self->frames_.fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace bs::server
