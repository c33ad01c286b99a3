// MemoryRoom: checks that there is memory for the bytes that a server is about to keep.
//
// The kernel promises memory that it has not got, and ends the process that uses it.  So the
// owner of a value or a sum asks here first, once for each.  Memory that is promised and not used
// yet counts as taken.
//
// Thread-safe: the shards of a server share a room.  Never blocks, but reads files of the kernel's
// when much is asked for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/status.h"

namespace bs::server {

class MemoryRoom {
 public:
  // Memory that was promised, until this is destroyed or its bytes are used: from then on the
  // kernel counts it.
  class Promise {
   public:
    Promise() = default;
    // `all` outlives this.
    Promise(std::atomic<uint64_t>* all, uint64_t size_bytes) : all_(all), size_bytes_(size_bytes) {}
    Promise(Promise&& other) noexcept
        : all_(other.all_), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    Promise& operator=(Promise&& other) noexcept {
      Used(size_bytes_);
      all_ = other.all_;
      size_bytes_ = std::exchange(other.size_bytes_, 0);
      return *this;
    }
    Promise(const Promise&) = delete;
    Promise& operator=(const Promise&) = delete;
    ~Promise() { Used(size_bytes_); }

    // Ends the promise of `size_bytes`, or of the rest if that is less.
    void Used(uint64_t size_bytes) {
      const uint64_t used_bytes = std::min(size_bytes, size_bytes_);
      if (used_bytes == 0) return;
      all_->fetch_sub(used_bytes);
      size_bytes_ -= used_bytes;
    }
    uint64_t size_bytes() const { return size_bytes_; }

   private:
    std::atomic<uint64_t>* all_ = nullptr;
    uint64_t size_bytes_ = 0;
  };

  // `available_bytes`: the bytes that this process can still take, from any thread; empty: the
  // system's own number.  `cure` ends an error.
  explicit MemoryRoom(std::function<uint64_t()> available_bytes = {},
                      std::string cure = "use more servers, or larger ones");
  MemoryRoom(const MemoryRoom&) = delete;
  MemoryRoom& operator=(const MemoryRoom&) = delete;
  ~MemoryRoom() = default;

  // kResourceExhausted if there is less: "4096 bytes do not fit into memory, of which ...".
  Result<Promise> Ask(uint64_t size_bytes);

 private:
  const std::function<uint64_t()> available_bytes_;
  const std::string cure_;
  std::atomic<uint64_t> promised_ = 0;
  std::atomic<uint64_t> unasked_ = 0;  // since the kernel was asked
};

}  // namespace bs::server
