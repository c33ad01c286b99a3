// How much of what comes is read at a time, and how much of that has to be copied.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ps-lite/transport/tcp/zmtp_harness.h"
#include "transport/tcp/zmtp.h"

namespace ps::test {
namespace {

using ZmtpReadsTest = ZmtpTest;

TEST_F(ZmtpReadsTest, BehindALongBodyLittleIsReadThatIsToBeCopied) {
  constexpr size_t kSizeBytes = 128U << 10U;
  std::string memory(kSizeBytes, ' ');
  place_ = [&](const Meta& /*meta*/, uint64_t /*size_bytes*/) {
    return std::make_shared<Landing>(Landing{.bytes = std::as_writable_bytes(std::span(memory))});
  };
  const auto message = [](int32_t number) {
    return FrameOf(MetaOf(number), true) + FrameOf(std::string(kSizeBytes, 'x'), false);
  };
  ASSERT_TRUE(Begin(Hello() + message(0)).ok());
  std::string bytes;
  for (int32_t i = 1; i <= 10; ++i) bytes += message(i);
  const std::vector<size_t> to_copy = ReadsOf(bytes);
  EXPECT_EQ(record_.messages.size(), 11u);
  EXPECT_EQ(to_copy.size(), 11u);  // the first one's head, then each body with the next one's
  for (const size_t size_bytes : to_copy) EXPECT_LE(size_bytes, 512u);
}

TEST_F(ZmtpReadsTest, ShortMessagesBehindALongOneAreReadManyAtATime) {
  ASSERT_TRUE(Begin(Hello() + FrameOf(MetaOf(1), true) +
                    FrameOf(std::string(size_t{128} << 10U, 'x'), false))
                  .ok());
  EXPECT_LT(RoomBytes(), ZmtpInput::kScratchBytes);
  std::string bytes;
  for (int32_t i = 0; i < 500; ++i) bytes += FrameOf(MetaOf(i), false);
  ASSERT_GT(bytes.size(), 1000u);
  EXPECT_LE(ReadsOf(bytes).size(), 2u);
  EXPECT_EQ(record_.messages.size(), 501u);
  EXPECT_EQ(RoomBytes(), ZmtpInput::kScratchBytes);
}

}  // namespace
}  // namespace ps::test
