// CopyBlocks: blocks come back, of the size that was asked for, and not too many are kept.
#include "frontend/mxnet/copy_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace bs::mxnet {
namespace {

TEST(CopyBlocks, GivesABlockOfTheSameSizeAgain) {
  CopyBlocks pool(1 << 20);
  CopyBlocks::Block block = pool.Take(1000);
  const std::byte* const memory = block.get();
  pool.Give(std::move(block), 1000);
  EXPECT_EQ(pool.kept_bytes(), 1024U);
  EXPECT_NE(pool.Take(1025).get(), memory);
  EXPECT_EQ(pool.Take(1024).get(), memory);
  EXPECT_EQ(pool.kept_bytes(), 0U);
}

TEST(CopyBlocks, HasRoomForEverySize) {
  CopyBlocks pool(1 << 20);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{65}, uint64_t{4096},
                              CopyBlocks::kLargest - 1, CopyBlocks::kLargest,
                              CopyBlocks::kLargest + 1, uint64_t{1} << 20U}) {
    for (int again = 0; again < 2; ++again) {
      CopyBlocks::Block block = pool.Take(size);
      std::memset(block.get(), 1, size);
      pool.Give(std::move(block), size);
    }
  }
}

TEST(CopyBlocks, KeepsNoMoreThanItMay) {
  CopyBlocks pool(2048);
  for (int i = 0; i < 3; ++i) pool.Give(std::make_unique<std::byte[]>(1024), 1024);
  EXPECT_EQ(pool.kept_bytes(), 2048U);
  pool.Give(std::make_unique<std::byte[]>(CopyBlocks::kLargest + 1), CopyBlocks::kLargest + 1);
  EXPECT_EQ(pool.kept_bytes(), 2048U);
}

}  // namespace
}  // namespace bs::mxnet
