// GrowingBlock: memory for a frame that has come only in part.
//
// A value with a single owner, confined to its thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "ps/message.h"

namespace ps {

class GrowingBlock {
 public:
  // Keeps the bytes that are there.  False, and nothing has changed, if there is no memory.  The
  // system moves large blocks without copying them.
  bool GrowTo(size_t size_bytes) {
    std::byte* const before = bytes_.release();
    void* const grown = std::realloc(before, size_bytes);
    bytes_.reset(grown == nullptr ? before : static_cast<std::byte*>(grown));
    if (grown == nullptr) return false;
    size_bytes_ = size_bytes;
    return true;
  }
  // Empty before the first GrowTo; valid until the next.
  std::span<std::byte> memory() const { return {bytes_.get(), size_bytes_}; }
  // Returns the whole memory as a frame that owns it; the block is empty afterwards.
  Frame Release() {
    const std::span<std::byte> view = memory();
    size_bytes_ = 0;
    return Frame::Own(view, [owned = std::move(bytes_)] {});
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_bytes_ = 0;
};

}  // namespace ps
