#include "server/sum_buffer.h"

#include <gtest/gtest.h>

#include <optional>

namespace bs::server {
namespace {

TEST(SumBufferTest, AFrameShowsTheMemoryWithoutACopy) {
  const auto buffer = std::make_shared<SumBuffer>(100, 0, 2);
  const ps::Frame frame = buffer->MakeFrame(0);
  EXPECT_EQ(frame.bytes().data(), buffer->data());
  EXPECT_EQ(frame.size(), 100u);
}

TEST(SumBufferTest, CountsTheFramesOfEachOfManyWorkers) {
  for (const int32_t num_workers : {1, 3, 4, 100}) {
    const auto buffer = std::make_shared<SumBuffer>(100, 0, num_workers);
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      const ps::Frame frame = buffer->MakeFrame(rank);
      EXPECT_TRUE(buffer->InFlight());
      for (int32_t other = 0; other < num_workers; ++other) {
        EXPECT_EQ(buffer->InFlightTo(other), other == rank) << rank << " of " << num_workers;
      }
    }
    EXPECT_FALSE(buffer->InFlight());
  }
}

TEST(SumBufferTest, KnowsWhetherFramesAreUnderWay) {
  const auto buffer = std::make_shared<SumBuffer>(100, 0, 2);
  EXPECT_FALSE(buffer->InFlight());
  std::optional<ps::Frame> one = buffer->MakeFrame(0);
  std::optional<ps::Frame> two = buffer->MakeFrame(1);
  one.reset();
  EXPECT_TRUE(buffer->InFlight());
  EXPECT_FALSE(buffer->InFlightTo(0));
  EXPECT_TRUE(buffer->InFlightTo(1));
  two.reset();
  EXPECT_FALSE(buffer->InFlight());
  EXPECT_FALSE(buffer->InFlightTo(1));
}

TEST(SumBufferTest, AFrameKeepsTheMemoryAfterItsSlotLetGo) {
  auto buffer = std::make_shared<SumBuffer>(8, 0, 2);
  buffer->data()[3] = std::byte{42};
  const ps::Frame frame = buffer->MakeFrame(0);
  buffer.reset();
  EXPECT_EQ(frame.bytes()[3], std::byte{42});
}

TEST(SumBufferTest, AnEmptyPartitionHasAnEmptyFrame) {
  const auto buffer = std::make_shared<SumBuffer>(0, 0, 2);
  EXPECT_EQ(buffer->MakeFrame(0).size(), 0u);
}

}  // namespace
}  // namespace bs::server
