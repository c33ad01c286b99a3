// WaitingCall: a request of a stock worker that waits, and counts in the bytes that its shard
// keeps.
//
// Confined to its shard's executor.
#pragma once

#include <cstdint>
#include <utility>

#include "server/stock/stock_request.h"

namespace bs::server {

// Returns about how many bytes a waiting request keeps.
inline uint64_t KeptBytes(const StockCall& call) {
  constexpr uint64_t kCallBytes = 1U << 10U;  // of a call without further bytes
  return kCallBytes + call.keys.size() + call.values.size() + call.meta.body.size();
}

// Owns the call, and its part of a sum of bytes until the call has its turn or is dropped.
class WaitingCall {
 public:
  // Adds to `*all_bytes`, which outlives this.
  WaitingCall(uint64_t* all_bytes, StockCall call)
      : all_bytes_(all_bytes), bytes_(KeptBytes(call)), call_(std::move(call)) {
    *all_bytes_ += bytes_;
  }
  WaitingCall(WaitingCall&& other) noexcept
      : all_bytes_(other.all_bytes_),
        bytes_(std::exchange(other.bytes_, 0)),
        call_(std::move(other.call_)) {}
  WaitingCall& operator=(WaitingCall&& other) noexcept {
    EndWait();
    all_bytes_ = other.all_bytes_;
    bytes_ = std::exchange(other.bytes_, 0);
    call_ = std::move(other.call_);
    return *this;
  }
  WaitingCall(const WaitingCall&) = delete;
  WaitingCall& operator=(const WaitingCall&) = delete;
  ~WaitingCall() { EndWait(); }

  // It has its turn: from now on it does not count.  Idempotent.
  void EndWait() { *all_bytes_ -= std::exchange(bytes_, 0); }
  StockCall& operator*() { return call_; }
  StockCall* operator->() { return &call_; }
  const StockCall* operator->() const { return &call_; }

 private:
  uint64_t* all_bytes_;
  uint64_t bytes_;  // that are counted
  StockCall call_;
};

}  // namespace bs::server
