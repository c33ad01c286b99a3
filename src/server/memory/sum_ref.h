// SumRef: an owner of a SumBuffer: its slot, or an answer in flight.
//
// Like shared_ptr with half of its size, no weak owners, and a count that takes no memory besides:
// two SumRefs and their buffers are most of the memory that a server keeps for a small key.
//
// Safe like shared_ptr: one SumRef is confined to one thread at a time, but SumRefs of the same
// buffer may be copied and destroyed on different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "server/memory/sum_buffer.h"

namespace bs::server {

class SumRef {
 public:
  SumRef() = default;
  // The first owner of a new buffer.  May throw std::bad_alloc.
  static SumRef Make(uint64_t size_bytes, int numa_node, int32_t num_readers,
                     const LendPagesFn& lend = {}) {
    return SumRef(new Counted(size_bytes, numa_node, num_readers, lend));
  }
  static SumRef Adopt(ps::Frame contribution, int32_t num_readers) {
    return SumRef(new Counted(std::move(contribution), num_readers));
  }
  SumRef(const SumRef& other) : sum_(other.sum_) {
    // Relaxed: the copied reference owns the buffer, so it cannot go meanwhile.
    if (sum_) sum_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  SumRef(SumRef&& other) noexcept : sum_(std::exchange(other.sum_, nullptr)) {}
  SumRef& operator=(const SumRef& other) {
    SumRef copy(other);
    std::swap(sum_, copy.sum_);
    return *this;
  }
  SumRef& operator=(SumRef&& other) noexcept {
    SumRef taken(std::move(other));
    std::swap(sum_, taken.sum_);
    return *this;
  }
  ~SumRef() {
    // Every owner's accesses happen before the last owner destroys the buffer.
    if (sum_ && sum_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete sum_;
  }

  explicit operator bool() const { return sum_ != nullptr; }
  SumBuffer& operator*() const { return *sum_; }
  SumBuffer* operator->() const { return sum_; }

 private:
  struct Counted final : SumBuffer {
    using SumBuffer::SumBuffer;
    std::atomic<uint32_t> owners = 1;
  };
  static_assert(sizeof(Counted) == sizeof(SumBuffer), "the count lies in what padding there is");

  explicit SumRef(Counted* sum) : sum_(sum) {}

  Counted* sum_ = nullptr;
};

}  // namespace bs::server
