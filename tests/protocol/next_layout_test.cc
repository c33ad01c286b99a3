#include "protocol/next_layout.h"

#include <gtest/gtest.h>

#include "protocol/placement.h"

namespace bs::protocol {
namespace {

Tensor TensorOf(uint64_t size_bytes, uint64_t partition_bytes) {
  return {.key = 7,
          .size_bytes = size_bytes,
          .partition_bytes = partition_bytes,
          .partitions = SplitIntoPartitions(size_bytes, partition_bytes, kAlignBytes)};
}

TEST(NextLayout, ComesBackAsItWas) {
  NextLayout next{.decision = 3, .credit_bytes = uint64_t{5} << 33U, .partition_bytes = 128};
  next.partitions = SplitIntoPartitions(300, 128, kAlignBytes);
  next.partitions[1].server = 2;
  const Result<NextLayout> read = DecodeNextLayout(Encode(next), TensorOf(300, 64), 3);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read.value().decision, 3U);
  EXPECT_EQ(read.value().credit_bytes, next.credit_bytes);
  EXPECT_EQ(read.value().partition_bytes, 128U);
  EXPECT_EQ(EncodeServers(read.value().partitions), EncodeServers(next.partitions));
  EXPECT_EQ(read.value().partitions.back().size_bytes, 44U);
}

TEST(NextLayout, MayOnlyTellACredit) {
  const Result<NextLayout> read =
      DecodeNextLayout(Encode({.decision = 1, .credit_bytes = 9}), TensorOf(300, 64), 1);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().credit_bytes, 9U);
  EXPECT_EQ(read.value().partition_bytes, 0U);
}

TEST(NextLayout, WrongBytesAreRefusedWithTheKey) {
  NextLayout good{.decision = 1, .credit_bytes = 9, .partition_bytes = 128};
  good.partitions = SplitIntoPartitions(300, 128, kAlignBytes);
  const auto with = [&](auto change) {
    NextLayout changed = good;
    change(&changed);
    return Encode(changed);
  };
  for (const std::string& bytes :
       {std::string("short"), Encode(good) + "x", Encode(good) + "xy",
        Encode(good).substr(0, Encode(good).size() - 1),
        with([](NextLayout* n) { n->credit_bytes = 0; }),
        with([](NextLayout* n) { n->partition_bytes = 63; }),
        with([](NextLayout* n) { n->partition_bytes = 100; }),
        with([](NextLayout* n) { n->partition_bytes = 64; }),
        with([](NextLayout* n) { n->partition_bytes = ~uint64_t{0} - 63; }),
        with([](NextLayout* n) { n->partitions[0].server = 1; }),
        with([](NextLayout* n) { n->partition_bytes = 0; }) + "xy"}) {
    const Result<NextLayout> read = DecodeNextLayout(bytes, TensorOf(300, 64), 1);
    EXPECT_EQ(read.status().code(), StatusCode::kInternal);
    EXPECT_NE(read.status().message().find("key=7"), std::string::npos);
  }
}

TEST(NextLayout, ADecisionIsReadWithoutItsTensor) {
  const std::string bytes = Encode(NextLayout{.decision = 3, .credit_bytes = 5000});
  EXPECT_EQ(DecisionIn(bytes), (Decision{.number = 3, .credit_bytes = 5000}));
  EXPECT_EQ(DecisionIn(bytes.substr(1)), std::nullopt);
  EXPECT_EQ(DecisionIn(Encode(NextLayout{.decision = 3})), std::nullopt) << "no credit";
}

TEST(NextLayout, ATensorInOnePartitionStaysInOne) {
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
}  // namespace bs::protocol
