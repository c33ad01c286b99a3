#include "transport/tcp/growing_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace ps {
namespace {

TEST(GrowingBlock, KeepsItsBytesWhenItGrows) {
  GrowingBlock block;
  EXPECT_TRUE(block.memory().empty());
  ASSERT_TRUE(block.GrowTo(10));
  std::ranges::fill(block.memory(), std::byte{7});
  ASSERT_TRUE(block.GrowTo(1U << 20U));
  EXPECT_EQ(block.memory().size(), 1U << 20U);
  EXPECT_EQ(std::ranges::count(block.memory().first(10), std::byte{7}), 10);
}

TEST(GrowingBlock, KeepsItselfWhereThereIsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers abort where there is no memory";
#endif
  GrowingBlock block;
  ASSERT_TRUE(block.GrowTo(10));
  block.memory()[9] = std::byte{7};
  volatile size_t too_much = std::numeric_limits<size_t>::max() / 4;  // or the compiler warns
  EXPECT_FALSE(block.GrowTo(too_much));
  ASSERT_EQ(block.memory().size(), 10U);
  EXPECT_EQ(block.memory()[9], std::byte{7});
}

TEST(GrowingBlock, AFrameOutlivesIt) {
  Frame frame;
  {
    GrowingBlock block;
    ASSERT_TRUE(block.GrowTo(10));
    std::ranges::fill(block.memory(), std::byte{7});
    frame = block.Release();
    EXPECT_TRUE(block.memory().empty());
    ASSERT_TRUE(block.GrowTo(20));  // it begins anew
  }
  EXPECT_EQ(frame.size(), 10U);
  EXPECT_EQ(std::ranges::count(frame.bytes(), std::byte{7}), 10);
}

}  // namespace
}  // namespace ps
