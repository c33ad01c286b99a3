// Memory of one round's sum that counts the frames showing it.
#include "server/memory/sum_buffer.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace bs::server {

SumBuffer::SumBuffer(uint64_t size_bytes, int numa_node, int32_t num_readers,
                     const LendPagesFn& lend)
    : num_counters_(static_cast<uint32_t>(num_readers)) {
  if (size_bytes <= std::tuple_size_v<decltype(Tiny::bytes)>) {
    memory_ = Tiny{.bytes = {}, .size_bytes = static_cast<uint8_t>(size_bytes)};
  } else {
    NodeBuffer large(size_bytes, numa_node);
    std::shared_ptr<void> loan = lend && !large.pages().empty() ? lend(large.pages()) : nullptr;
    if (loan) {
      memory_ = std::make_unique<Lent>(std::move(large), std::move(loan));
    } else {
      memory_ = std::move(large);
    }
  }
  if (!has_few()) more_ = new Counter[num_counters_]{};
}

SumBuffer::SumBuffer(ps::Frame contribution, int32_t num_readers)
    : memory_(std::make_unique<ps::Frame>(std::move(contribution))),
      num_counters_(static_cast<uint32_t>(num_readers)) {
  if (!has_few()) more_ = new Counter[num_counters_]{};
}

SumBuffer::~SumBuffer() {
  if (!has_few()) delete[] more_;
}

bool SumBuffer::InFlight() const {
  return std::ranges::any_of(counters(), [](const Counter& frames) {
    return frames.load(std::memory_order_acquire) != 0;
  });
}

}  // namespace bs::server
