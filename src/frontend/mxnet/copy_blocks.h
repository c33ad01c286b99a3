// CopyBlocks: memory for the copies of small values, which every round wants anew.
//
// The allocator takes its time for a block of a kilobyte and more: it gathers the small blocks
// first.
//
// One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bs::mxnet {

class CopyBlocks {
 public:
  using Block = std::unique_ptr<std::byte[]>;

  // Larger blocks are not kept.
  static constexpr uint64_t kLargest = uint64_t{64} << 10U;

  // Keeps up to `most_bytes` that are not in use.
  explicit CopyBlocks(uint64_t most_bytes) : most_bytes_(most_bytes) {}
  CopyBlocks(const CopyBlocks&) = delete;
  CopyBlocks& operator=(const CopyBlocks&) = delete;
  ~CopyBlocks() = default;

  // Returns at least `size_bytes` of any content.  Throws if there is no memory.
  Block Take(uint64_t size_bytes) {
    if (size_bytes > kLargest) return std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    const uint64_t rounded = Rounded(size_bytes);
    std::vector<Block>& blocks = blocks_[ClassOf(rounded)];
    if (blocks.empty()) return std::make_unique_for_overwrite<std::byte[]>(rounded);
    Block block = std::move(blocks.back());
    blocks.pop_back();
    kept_bytes_ -= rounded;
    return block;
  }

  // Takes a block back; `size_bytes` is the size that was asked for.
  void Give(Block block, uint64_t size_bytes) {
    const uint64_t rounded = Rounded(size_bytes);
    if (rounded > kLargest || kept_bytes_ + rounded > most_bytes_) return;
    blocks_[ClassOf(rounded)].push_back(std::move(block));
    kept_bytes_ += rounded;
  }

  uint64_t kept_bytes() const { return kept_bytes_; }

 private:
  static constexpr uint64_t kLeast = 64;
  static constexpr size_t kClasses = 1 + std::countr_zero(kLargest) - std::countr_zero(kLeast);

  static uint64_t Rounded(uint64_t size_bytes) {
    return size_bytes <= kLeast ? kLeast : std::bit_ceil(size_bytes);
  }
  static size_t ClassOf(uint64_t rounded) {
    return static_cast<size_t>(std::countr_zero(rounded) - std::countr_zero(kLeast));
  }

  const uint64_t most_bytes_;
  uint64_t kept_bytes_ = 0;
  std::array<std::vector<Block>, kClasses> blocks_;  // by size
};

}  // namespace bs::mxnet
