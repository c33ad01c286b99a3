#include "server/sum_buffer.h"

#include <gtest/gtest.h>

#include <optional>

namespace bs::server {
namespace {

TEST(SumBufferTest, AFrameShowsTheMemoryWithoutACopy) {
  const auto buffer = std::make_shared<SumBuffer>(100, 0);
  const ps::Frame frame = buffer->MakeFrame();
  EXPECT_EQ(frame.bytes().data(), buffer->data());
  EXPECT_EQ(frame.size(), 100u);
}

TEST(SumBufferTest, KnowsWhetherFramesAreUnderWay) {
  const auto buffer = std::make_shared<SumBuffer>(100, 0);
  EXPECT_FALSE(buffer->InFlight());
  std::optional<ps::Frame> one = buffer->MakeFrame();
  std::optional<ps::Frame> two = buffer->MakeFrame();
  one.reset();
  EXPECT_TRUE(buffer->InFlight());
  two.reset();
  EXPECT_FALSE(buffer->InFlight());
}

TEST(SumBufferTest, AFrameKeepsTheMemoryAfterItsSlotLetGo) {
  auto buffer = std::make_shared<SumBuffer>(8, 0);
  buffer->data()[3] = std::byte{42};
  const ps::Frame frame = buffer->MakeFrame();
  buffer.reset();
  EXPECT_EQ(frame.bytes()[3], std::byte{42});
}

TEST(SumBufferTest, AnEmptyPartitionHasAnEmptyFrame) {
  const auto buffer = std::make_shared<SumBuffer>(0, 0);
  EXPECT_EQ(buffer->MakeFrame().size(), 0u);
}

}  // namespace
}  // namespace bs::server
