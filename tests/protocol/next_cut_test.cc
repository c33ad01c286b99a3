#include "protocol/next_cut.h"

#include <gtest/gtest.h>

#include "protocol/placement.h"

namespace bs::worker {
namespace {

Tensor TensorOf(uint64_t size_bytes, uint64_t part_bytes) {
  return {.key = 7,
          .size_bytes = size_bytes,
          .part_bytes = part_bytes,
          .partitions = Cut(size_bytes, part_bytes, kAlignBytes)};
}

TEST(NextCut, ComesBackAsItWas) {
  NextCut next{.decision = 3, .credit_bytes = uint64_t{5} << 33U, .part_bytes = 128};
  next.partitions = Cut(300, 128, kAlignBytes);
  next.partitions[1].server = 2;
  const Result<NextCut> read = DecodeNextCut(Encode(next), TensorOf(300, 64), 3);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read.value().decision, 3U);
  EXPECT_EQ(read.value().credit_bytes, next.credit_bytes);
  EXPECT_EQ(read.value().part_bytes, 128U);
  EXPECT_EQ(EncodeServers(read.value().partitions), EncodeServers(next.partitions));
  EXPECT_EQ(read.value().partitions.back().size_bytes, 44U);
}

TEST(NextCut, MayOnlyTellACredit) {
  const Result<NextCut> read =
      DecodeNextCut(Encode({.decision = 1, .credit_bytes = 9}), TensorOf(300, 64), 1);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().credit_bytes, 9U);
  EXPECT_EQ(read.value().part_bytes, 0U);
}

TEST(NextCut, NonsenseIsRefusedWithTheKey) {
  NextCut good{.decision = 1, .credit_bytes = 9, .part_bytes = 128};
  good.partitions = Cut(300, 128, kAlignBytes);
  const auto with = [&](auto change) {
    NextCut changed = good;
    change(&changed);
    return Encode(changed);
  };
  for (const std::string& bytes :
       {std::string("short"), Encode(good) + "x", Encode(good) + "xy",
        Encode(good).substr(0, Encode(good).size() - 1),
        with([](NextCut* n) { n->credit_bytes = 0; }), with([](NextCut* n) { n->part_bytes = 63; }),
        with([](NextCut* n) { n->part_bytes = 100; }), with([](NextCut* n) { n->part_bytes = 64; }),
        with([](NextCut* n) { n->part_bytes = ~uint64_t{0} - 63; }),
        with([](NextCut* n) { n->partitions[0].server = 1; }),
        with([](NextCut* n) { n->part_bytes = 0; }) + "xy"}) {
    const Result<NextCut> read = DecodeNextCut(bytes, TensorOf(300, 64), 1);
    EXPECT_EQ(read.status().code(), StatusCode::kInternal);
    EXPECT_NE(read.status().message().find("key=7"), std::string::npos);
  }
}

TEST(NextCut, ATensorInOnePartitionStaysInOne) {
  EXPECT_FALSE(WouldChange(TensorOf(0, 64), 128));
  EXPECT_FALSE(WouldChange(TensorOf(100, 128), 256));
  EXPECT_TRUE(WouldChange(TensorOf(100, 128), 64));
  EXPECT_TRUE(WouldChange(TensorOf(300, 128), 192)) << "both in more than one";
  EXPECT_TRUE(WouldChange(TensorOf(300, 64), 512));
  EXPECT_FALSE(WouldChange(TensorOf(300, 64), 64));
  EXPECT_TRUE(WouldChange(TensorOf(uint64_t{64} << 20U, 1 << 20), 64));
  EXPECT_FALSE(WouldChange(TensorOf((uint64_t{64} << 20U) + 1, 1 << 20), 64)) << "too many";
}

}  // namespace
}  // namespace bs::worker
