// Blocks come back to be used again, up to a bound; pool and frames may end in either order.
#include "transport/tcp/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>

// Sanitizers, which look for these functions, end a process that asks for too much, unless they are
// told that this one means it.
extern "C" {
[[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
}

namespace ps {
namespace {

TEST(BlockPool, LendsTheSameBlockAgainForAboutTheSameSize) {
  const auto pool = std::make_shared<BlockPool>();
  std::span<std::byte> first;
  std::span<std::byte> second;
  {
    const Frame frame = pool->New(100'000, &first);
    ASSERT_EQ(first.size(), 100'000u);
    EXPECT_EQ(frame.bytes().data(), first.data());
    std::memset(first.data(), 1, first.size());
    EXPECT_EQ(pool->kept_bytes(), 0u);
  }
  EXPECT_EQ(pool->kept_bytes(), 102'400u);
  const Frame frame = pool->New(100'001, &second);
  EXPECT_EQ(second.data(), first.data());
  EXPECT_EQ(second.size(), 100'001u);
  EXPECT_EQ(pool->kept_bytes(), 0u);
}

TEST(BlockPool, AFrameOwnsItsBlockWhichBeginsWithALine) {
  const auto pool = std::make_shared<BlockPool>();
  for (const size_t size_bytes : {5000U, 16384U, 300'000U}) {
    std::span<std::byte> memory;
    const Frame frame = pool->New(size_bytes, &memory);
    EXPECT_EQ(frame.writable().data(), memory.data());
    EXPECT_EQ(frame.writable().size(), size_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0u);
  }
}

TEST(BlockPool, KeepsNoMoreThanItMay) {
  const auto pool = std::make_shared<BlockPool>();
  std::span<std::byte> memory;
  for (size_t pages = 1; pages < 200; ++pages) {
    std::vector<Frame> frames;
    for (int i = 0; i < 100; ++i) frames.push_back(pool->New(pages * 4096, &memory));
  }
  EXPECT_GT(pool->kept_bytes(), 0u);
  EXPECT_LE(pool->kept_bytes(), BlockPool::kMostKeptBytes);
  static_cast<void>(pool->New(BlockPool::kMostKeptBytes + 1, &memory));
  EXPECT_LE(pool->kept_bytes(), BlockPool::kMostKeptBytes);
}

TEST(BlockPool, FramesOutliveTheirOwner) {
  auto pool = std::make_shared<BlockPool>();
  std::span<std::byte> memory;
  const Frame frame = pool->New(5000, &memory);
  pool.reset();
  std::memset(memory.data(), 7, memory.size());
  EXPECT_EQ(frame.bytes().back(), std::byte{7});
}

TEST(BlockPool, SaysThatThereIsNoMemory) {
  const auto pool = std::make_shared<BlockPool>();
  std::span<std::byte> memory;
  const Frame frame = pool->New(size_t{1} << 60U, &memory);
  EXPECT_EQ(frame.size(), 0u);
  EXPECT_TRUE(memory.empty());
}

}  // namespace
}  // namespace ps
