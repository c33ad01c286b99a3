// RdmaRing: which bytes of a block hold the SENDs under way.  They end in the order they began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace ps {

class RdmaRing {
 public:
  RdmaRing() = default;
  // No SEND has more than `most_bytes`.  REQUIRES: most_bytes <= size_bytes.
  RdmaRing(size_t size_bytes, size_t most_bytes) : size_(size_bytes), most_(most_bytes) {}

  // The next SEND has room.
  bool has_room() const { return Begin() + most_ - oldest_ <= size_; }
  // Where that room begins; it is contiguous.
  size_t offset() const { return Begin() % size_; }
  // A SEND uses that many bytes of its room; none if the NIC has a copy.
  void Push(size_t size_bytes) {
    next_ = Begin() + (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    ends_.push_back(next_);
  }
  // The oldest SEND needs its bytes no more.
  void Pop() {
    oldest_ = ends_.front();
    ends_.pop_front();
    if (ends_.empty()) next_ = oldest_ = 0;  // the warmest
  }

 private:
  static constexpr size_t kLineBytes = 64;

  // Positions count all laps.  A SEND that does not fit before the end begins a new lap.
  uint64_t Begin() const {
    const uint64_t at = next_ % size_;
    return size_ - at < most_ ? next_ + size_ - at : next_;
  }

  uint64_t size_ = 1;
  uint64_t most_ = 0;
  uint64_t next_ = 0;
  uint64_t oldest_ = 0;
  std::deque<uint64_t> ends_;  // of the SENDs under way
};

}  // namespace ps
