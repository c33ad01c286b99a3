// BlockPool: memory for long frames, reused while it is still mapped and in the caches.
//
// Fresh memory of that size costs a page fault every 4 KiB, more than reading the bytes costs.
// Thread-safe; frames may outlive the pool's owner.  Keeps at most kMostKeptBytes of unused memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "ps/message.h"

namespace ps {

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  static constexpr size_t kMostKeptBytes = size_t{32} << 20U;

  // REQUIRES: owned by a shared_ptr; the frames share it.
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() = default;

  // Returns a frame of `size_bytes`, not filled, and where to write in `memory`.  It owns them, and
  // begins with a line of the caches.  Empty if there is no memory.
  Frame New(size_t size_bytes, std::span<std::byte>* memory);
  size_t kept_bytes() const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  Block Take(size_t block_bytes);
  void GiveBack(Block block, size_t block_bytes);

  mutable bs::Mutex mutex_;
  std::map<size_t, std::vector<Block>> blocks_ BS_GUARDED_BY(mutex_);  // by size
  size_t kept_bytes_ BS_GUARDED_BY(mutex_) = 0;
};

}  // namespace ps
