// SumBuffer: the memory of one round's sum, and whether answers that show it are still under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/numa.h"
#include "ps/message.h"

namespace bs::server {

// Written on its shard's thread only, and only while not InFlight(); read by the frames of answers
// on any thread.  May throw std::bad_alloc when made.  Shared by its slot and the frames in flight:
// the slot may let go of it and take another one while the old one is still leaving.
class SumBuffer : public std::enable_shared_from_this<SumBuffer> {
 public:
  SumBuffer(uint64_t size_bytes, int numa_node);

  std::byte* data() const { return memory_.data(); }
  // A frame over all the bytes, without a copy.  REQUIRES: owned by a shared_ptr.
  ps::Frame MakeFrame();
  // Frames made and not released yet.  False means that everything they read happened before.
  bool InFlight() const { return frames_.load(std::memory_order_acquire) != 0; }

 private:
  const NodeBuffer memory_;  // empty for an empty partition
  const uint64_t size_bytes_;
  // Not shared_ptr::use_count(): that one is relaxed and orders nothing.
  std::atomic<uint32_t> frames_{0};
};

}  // namespace bs::server
