// Lends blocks and takes them back.
#include "transport/tcp/block_pool.h"

#include <utility>

namespace ps {
namespace {

// Sizes differ little where tensors are cut into partitions: a size is rounded up to whole pages.
constexpr size_t kPageBytes = 4096;
constexpr size_t kLineBytes = 64;  // of the caches: summing kernels load whole lines

}  // namespace

Frame BlockPool::New(size_t size_bytes, std::span<std::byte>* memory) {
  const size_t block_bytes = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Block block = Take(block_bytes);
  if (block == nullptr) return {};
  *memory = {block.get(), size_bytes};
  return Frame::Own(*memory,
                    [pool = shared_from_this(), kept = std::move(block), block_bytes]() mutable {
                      pool->GiveBack(std::move(kept), block_bytes);
                    });
}

size_t BlockPool::kept_bytes() const {
  const bs::MutexLock lock(&mutex_);
  return kept_bytes_;
}

BlockPool::Block BlockPool::Take(size_t block_bytes) {
  {
    const bs::MutexLock lock(&mutex_);
    const auto it = blocks_.find(block_bytes);
    if (it != blocks_.end() && !it->second.empty()) {
      Block block = std::move(it->second.back());  // the warmest
      it->second.pop_back();
      kept_bytes_ -= block_bytes;
      return block;
    }
  }
  return Block(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, block_bytes)));
}

void BlockPool::GiveBack(Block block, size_t block_bytes) {
  std::map<size_t, std::vector<Block>> too_many;  // freed after the lock is gone
  const bs::MutexLock lock(&mutex_);
  if (block_bytes > kMostKeptBytes) return;
  // Blocks of sizes that are no longer used must not take the room for ever.
  if (kept_bytes_ + block_bytes > kMostKeptBytes) {
    too_many.swap(blocks_);
    kept_bytes_ = 0;
  }
  blocks_[block_bytes].push_back(std::move(block));
  kept_bytes_ += block_bytes;
}

}  // namespace ps
