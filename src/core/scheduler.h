// Scheduler: orders partitions by priority and bounds the bytes in flight.
//
// The pure rules; one instance for each server a worker sends to.  A higher priority goes first;
// equal priorities go in the order of Submit().  At most credit_bytes are in flight, with two
// exceptions.  One partition may always be in flight, so a credit smaller than a partition slows
// the link and never stops it.  Small partitions have a reserve besides: otherwise an urgent tensor
// of some KB would wait for the acknowledgement of a large partition, which it can overtake on its
// way.  The head of the queue is never skipped for a smaller partition behind it: that would invert
// the priorities exactly when the link is busiest.
//
// Not thread-safe: the owner confines it to one executor.  Does no I/O, reads no clock, never
// fails; a broken REQUIRES aborts.  Submit and Next cost the same at any depth.
//
// Source: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training
// Acceleration", SOSP 2019.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/types.h"

namespace bs::core {

// An entry of the queue.  Only the owner interprets `token` and `index`.
struct Item {
  Priority priority = 0;
  uint64_t size_bytes = 0;
  void* token = nullptr;
  uint32_t index = 0;
};

class Scheduler {
 public:
  // At most credit / kSmallShare bytes are small; for them the credit is larger by credit /
  // kReserveShare: 8 KiB and 16 KiB of 128 KiB.
  static constexpr uint64_t kSmallShare = 16;
  static constexpr uint64_t kReserveShare = 8;

  // `small_reserve`: small partitions have theirs.  REQUIRES: credit_bytes > 0.
  explicit Scheduler(uint64_t credit_bytes, bool small_reserve = true);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void Submit(const Item& item);
  // The item that goes next.  REQUIRES: queued() > 0.
  const Item& head() const;
  // True if Next() returns it.
  bool may_start() const;
  // The item that may start now, its bytes then counted as in flight; nothing if the queue is empty
  // or the head does not fit.
  std::optional<Item> Next();
  // Applies from now on; partitions in flight stay in flight.  REQUIRES: credit_bytes > 0.
  void SetCredit(uint64_t credit_bytes);
  // `size_bytes` of an earlier Next() were acknowledged.  REQUIRES: as many are in flight.
  void Return(uint64_t size_bytes);
  // Removes every queued item of `token`; O(queue).  Returns how many.
  size_t Remove(const void* token);
  // Removes everything queued; O(queue).  Returns how many.
  size_t Clear();

  size_t queued() const;
  uint64_t queued_bytes() const { return queued_bytes_; }
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }
  uint64_t credit_bytes() const { return credit_bytes_; }

 private:
  class Queue;  // FIFO lists by priority, found through bitmaps
  const bool small_reserve_;
  uint64_t credit_bytes_ = 0;
  uint64_t queued_bytes_ = 0;
  uint64_t in_flight_bytes_ = 0;
  uint32_t in_flight_items_ = 0;
  const std::unique_ptr<Queue> queue_;
};

}  // namespace bs::core
