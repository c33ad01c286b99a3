// RdmaWindow: how many bytes the READs of a peer may have under way.
//
// An urgent message waits for as long as the window takes.  Too small a window leaves the link idle
// between READs.  So it is twice the bytes that the link carries in the time of a READ on an idle
// link.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/types.h"
#include "transport/rdma/rdma_memory.h"

namespace ps {

// A value with a single owner.
class RdmaWindow {
 public:
  static constexpr uint64_t kFirstBytes = 128U << 10U;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 20U;
  static constexpr uint64_t kLongestRead = 64U << 10U;
  // For links below kSlow: 64 KiB take them half a millisecond.
  static constexpr uint64_t kShortRead = 16U << 10U;
  static constexpr double kSlow = 5e9 / 8;  // bytes a second

  // `bytes`: fixed, at least a page; 0: it adapts.
  explicit RdmaWindow(uint64_t bytes) : fixed_bytes_(bytes) {}

  uint64_t bytes() const {
    if (fixed_bytes_ > 0) return fixed_bytes_;
    if (rate_ <= 0) return kFirstBytes;
    const double least = std::chrono::duration<double>(least_).count();
    return std::clamp(static_cast<uint64_t>(2 * rate_ * least), 2 * read_bytes(), kMostBytes);
  }
  // The bytes of a READ, in whole pages.
  uint64_t read_bytes() const {
    const uint64_t longest = rate_ > 0 && rate_ < kSlow ? kShortRead : kLongestRead;
    if (fixed_bytes_ == 0) return longest;
    constexpr uint64_t kPage = RdmaMemory::kPageBytes;
    return std::clamp(fixed_bytes_ / kPage * kPage, kPage, longest);
  }
  // A READ of `size_bytes` took `time`.  Meanwhile READs of `carried_bytes` ended, with itself.
  void Measure(uint64_t size_bytes, bs::Duration time, uint64_t carried_bytes) {
    if (size_bytes < read_bytes() || time <= bs::Duration::zero()) return;
    const double seconds = std::chrono::duration<double>(time).count();
    rate_ = std::max(rate_ * kForget, static_cast<double>(carried_bytes) / seconds);
    least_ = least_ == bs::Duration::zero() ? time : std::min(time, least_ + least_ / 64);
  }

 private:
  static constexpr double kForget = 1 - 1.0 / 64;
  uint64_t fixed_bytes_;
  double rate_ = 0;       // of late, the most
  bs::Duration least_{};  // of late, the least
};

}  // namespace ps
