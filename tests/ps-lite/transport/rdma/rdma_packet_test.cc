// Packets of RDMA: what is written is read again, and nothing else is taken.
#include "transport/rdma/rdma_packet.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ps::test {
namespace {

using Kind = RdmaHeader::Kind;

std::vector<std::byte> Written(const RdmaHeader& header, const std::vector<RdmaFrame>& frames,
                               size_t rest_bytes) {
  std::vector<std::byte> bytes(RdmaHeader::kBytes + frames.size() * RdmaFrame::kBytes + rest_bytes);
  WriteRdmaHeader(header, bytes);
  size_t at = RdmaHeader::kBytes;
  for (const RdmaFrame& frame : frames) {
    WriteRdmaFrame(frame, std::span(bytes).subspan(at));
    at += RdmaFrame::kBytes;
  }
  return bytes;
}

TEST(RdmaPacketTest, AWrittenPacketIsReadBack) {
  const auto bytes =
      Written({.kind = Kind::kAdvert, .frames = 2, .credits = 3, .meta_bytes = 5, .id = 0x01020304},
              {{.size_bytes = 7, .address = 0x1122334455667788, .key = 9}, {}}, 5);
  const auto packet = ParseRdmaPacket(bytes);
  ASSERT_TRUE(packet.ok()) << packet.status().ToString();
  const RdmaHeader& header = packet.value().header;
  EXPECT_EQ(header.kind, Kind::kAdvert);
  EXPECT_EQ(header.credits, 3);
  EXPECT_EQ(header.meta_bytes, 5U);
  EXPECT_EQ(header.id, 0x01020304U);
  EXPECT_EQ(packet.value().frames[0].size_bytes, 7U);
  EXPECT_EQ(packet.value().frames[0].address, 0x1122334455667788U);
  EXPECT_EQ(packet.value().frames[0].key, 9U);
  EXPECT_EQ(packet.value().rest.size(), 5U);
  // The order of bytes is part of the protocol.
  EXPECT_EQ(bytes[8], std::byte{4});
  EXPECT_EQ(bytes[RdmaHeader::kBytes + 8], std::byte{0x88});
}

TEST(RdmaPacketTest, IdsAreRead) {
  auto bytes = Written({.kind = Kind::kControl, .count = 2}, {}, 2 * kRdmaIdBytes);
  WriteRdmaId(77, std::span(bytes).subspan(RdmaHeader::kBytes + kRdmaIdBytes));
  const auto packet = ParseRdmaPacket(bytes);
  ASSERT_TRUE(packet.ok());
  EXPECT_EQ(packet.value().IdAt(1), 77U);
}

TEST(RdmaPacketTest, NonsenseIsRefused) {
  const auto refused = [](const std::vector<std::byte>& bytes) {
    const auto packet = ParseRdmaPacket(bytes);
    return !packet.ok() && packet.status().code() == bs::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(std::vector<std::byte>(RdmaHeader::kBytes)));  // kind 0
  EXPECT_TRUE(refused(Written({.kind = static_cast<Kind>(6)}, {}, 0)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kMessage, .frames = 1}, {}, 0))) << "cut short";
  EXPECT_TRUE(refused(Written({.kind = Kind::kMessage, .frames = 17}, {}, 17 * 24)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kMore, .frames = 1}, {{}}, 4)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kMore}, {}, 0)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kControl, .count = 3}, {}, 2 * kRdmaIdBytes)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kControl, .count = 1U << 30U}, {}, 0)));
  EXPECT_TRUE(refused(Written({.kind = Kind::kProof}, {}, kRdmaTokenBytes - 1)));
  const RdmaFrame giant{.size_bytes = kMaxFrameBytes + 1};
  EXPECT_TRUE(refused(Written({.kind = Kind::kAdvert, .frames = 1}, {giant}, 0)));
  const RdmaFrame beyond{.size_bytes = 2, .address = UINT64_MAX};
  EXPECT_TRUE(refused(Written({.kind = Kind::kAdvert, .frames = 1}, {beyond}, 0)));
}

}  // namespace
}  // namespace ps::test
