// SumBuffer: the memory of one round's sum, and whose answers that show it are still under way.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/numa.h"
#include "ps/message.h"

namespace bs::server {

// Written on its shard's thread only, and only while not InFlight(); read by the frames of answers
// on any thread.  May throw std::bad_alloc when made.  Shared by its slot and the frames in flight:
// the slot may let go of it and take another one while the old one is still leaving.
class SumBuffer : public std::enable_shared_from_this<SumBuffer> {
 public:
  // Answers go to workers 0 .. num_workers-1.
  SumBuffer(uint64_t size_bytes, int numa_node, int32_t num_workers);

  std::byte* data() const { return memory_.data(); }
  // A frame over all the bytes for worker `rank`, without a copy.  REQUIRES: owned by a shared_ptr.
  ps::Frame MakeFrame(int32_t rank);
  // Frames made and not released yet: to anyone, or to `rank`.  False means that everything they
  // read happened before.
  bool InFlight() const;
  bool InFlightTo(int32_t rank) const {
    return counters()[static_cast<size_t>(rank)].load(std::memory_order_acquire) != 0;
  }

 private:
  using Counter = std::atomic<uint32_t>;
  static constexpr size_t kFew = 3;  // as many as there is room for in the allocation

  std::span<const Counter> counters() const {
    return {more_ ? more_.get() : few_.data(), num_workers_};
  }
  Counter& CounterOf(int32_t rank) {
    return (more_ ? more_.get() : few_.data())[static_cast<size_t>(rank)];
  }

  const NodeBuffer memory_;  // empty for an empty partition
  const uint32_t num_workers_;
  // By rank.  Not shared_ptr::use_count(): that one is relaxed and orders nothing.
  std::array<Counter, kFew> few_{};
  const std::unique_ptr<Counter[]> more_;  // instead, for more workers
};

}  // namespace bs::server
