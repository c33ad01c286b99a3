// SumBuffer: the memory of a round's sum, and a count for each worker of the answers under way that
// show it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "base/numa.h"
#include "ps/message.h"

namespace bs::server {

// Written on its shard's thread only, and only while not InFlight(); read by the frames of answers
// on any thread.  May throw std::bad_alloc when made.  Shared by its slot and the frames in flight:
// the slot may let go of it and take another buffer while the old buffer is still leaving.  Its
// maker chooses SumRef, or shared_ptr if something watches it without owning it.
//
// A server keeps two buffers for each partition, so a small buffer for few workers needs no further
// allocation.
class SumBuffer {
 public:
  // Answers go to `num_readers` workers, from rank 0 on.
  // `lend` gets its memory if that is whole pages.
  SumBuffer(uint64_t size_bytes, int numa_node, int32_t num_readers, const LendPagesFn& lend = {});
  // The sum begins as the values of `contribution`, in its memory.  REQUIRES: it is writable.
  SumBuffer(ps::Frame contribution, int32_t num_readers);
  SumBuffer(const SumBuffer&) = delete;
  SumBuffer& operator=(const SumBuffer&) = delete;
  ~SumBuffer();

  std::byte* data() { return bytes().data(); }
  uint64_t size_bytes() { return bytes().size(); }
  // A frame over all the bytes of the buffer that `owner` points to, for worker `rank`, without a
  // copy.  The frame keeps `owner`.
  template <typename Owner>
  static ps::Frame MakeFrame(Owner owner, int32_t rank);
  // Frames made and not released yet: to anyone, or to `rank`.  False means that everything they
  // read happened before.
  bool InFlight() const;
  bool InFlightTo(int32_t rank) const {
    return counters()[static_cast<size_t>(rank)].load(std::memory_order_acquire) != 0;
  }

 private:
  using Counter = std::atomic<uint32_t>;
  static constexpr size_t kFew = 2;  // as many as there is room for in the place of a pointer
  // Bytes in the place of a NodeBuffer.
  struct Tiny {
    std::array<std::byte, sizeof(NodeBuffer) - 1> bytes;
    uint8_t size_bytes;
  };

  // Memory whose registration with a network device ends before it.
  struct Lent {
    Lent(NodeBuffer pages, std::shared_ptr<void> registration)
        : memory(std::move(pages)), loan(std::move(registration)) {}

    NodeBuffer memory;
    std::shared_ptr<void> loan;
  };

  std::span<std::byte> bytes() {
    if (auto* const tiny = std::get_if<Tiny>(&memory_)) {
      return {tiny->bytes.data(), tiny->size_bytes};
    }
    if (auto* const adopted = std::get_if<Adopted>(&memory_)) return (*adopted)->writable();
    const auto* const lent = std::get_if<std::unique_ptr<Lent>>(&memory_);
    const NodeBuffer& large = lent != nullptr ? (*lent)->memory : std::get<NodeBuffer>(memory_);
    return {large.data(), large.size_bytes()};
  }
  using Adopted = std::unique_ptr<ps::Frame>;  // apart, so that the variant stays small

  bool has_few() const { return num_counters_ <= kFew; }
  std::span<const Counter> counters() const { return {has_few() ? few_ : more_, num_counters_}; }
  Counter& CounterOf(int32_t rank) { return (has_few() ? few_ : more_)[static_cast<size_t>(rank)]; }

  // Zeroed at first, but for Adopted.
  std::variant<Tiny, NodeBuffer, Adopted, std::unique_ptr<Lent>> memory_;
  // By rank.  Not shared_ptr::use_count(), nor SumRef's count: their readers order nothing.
  union {
    Counter few_[kFew] = {};
    Counter* more_;  // owned; unless has_few()
  };
  const uint32_t num_counters_;  // last, so that SumRef's count fits behind it
};

template <typename Owner>
ps::Frame SumBuffer::MakeFrame(Owner owner, int32_t rank) {
  SumBuffer& sum = *owner;
  sum.CounterOf(rank).fetch_add(1, std::memory_order_relaxed);
  return ps::Frame::Borrow(sum.bytes(), [owner = std::move(owner), rank] {
    owner->CounterOf(rank).fetch_sub(1, std::memory_order_release);
  });
}

}  // namespace bs::server
