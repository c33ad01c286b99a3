#include "protocol/exchange_terms.h"

#include <gtest/gtest.h>

#include "base/snapshot.h"

namespace bs::protocol {
namespace {

ExchangeTerms Terms() {
  return {.size_bytes = 300,
          .partition_bytes = 128,
          .dtype = DType::kInt32,
          .reduction = Reduction::kMax,
          .givers = {0, 1, 2, 5, 9, 10},
          .takers = {3},
          .label = "all_reduce #7"};
}

TEST(ExchangeTerms, AreTheSameBehindTheWire) {
  ExchangeTerms strided = Terms();
  strided.takers = {1, 3, 5, 7};
  for (const ExchangeTerms& terms :
       {Terms(), strided, ExchangeTerms{.partition_bytes = 64, .givers = {0}, .takers = {65535}}}) {
    const std::string bytes = Encode(terms);
    const Result<ExchangeTerms> read = DecodeTerms(bytes);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value(), terms);
    EXPECT_EQ(Encode(read.value()), bytes);
  }
  ExchangeTerms many = Terms();
  many.givers.clear();
  for (int32_t rank = 0; rank < 1000; ++rank) many.givers.push_back(rank);
  EXPECT_LT(Encode(many).size(), 50U) << "ranks travel as runs";
}

TEST(ExchangeTerms, ThatMakeNoSenseAreRefused) {
  const auto wrong = [](void (*change)(ExchangeTerms*)) {
    ExchangeTerms terms = Terms();
    change(&terms);
    EXPECT_EQ(DecodeTerms(Encode(terms)).ok(), CheckTerms(terms).ok());
    return CheckTerms(terms).message();
  };
  const char* const ranks =
      "an exchange needs a giver and a taker, and names each rank once, in order";
  EXPECT_EQ(wrong([](ExchangeTerms* terms) { terms->givers.clear(); }), ranks);
  EXPECT_EQ(wrong([](ExchangeTerms* terms) { terms->takers.clear(); }), ranks);
  ExchangeTerms twice = Terms();
  twice.givers = {1, 1};
  EXPECT_EQ(CheckTerms(twice).message(), ranks);
  EXPECT_SNAPSHOT(wrong([](ExchangeTerms* terms) { terms->label.assign(201, 'x'); }),
                  R"snap(a label of 201 bytes, at most 200 are taken)snap");
  EXPECT_SNAPSHOT(wrong([](ExchangeTerms* terms) { terms->size_bytes = 301; }),
                  R"snap(301 bytes are not whole elements of int32)snap");
  EXPECT_SNAPSHOT(wrong([](ExchangeTerms* terms) { terms->partition_bytes = 100; }),
                  R"snap(300 bytes in partitions of 100)snap");
  EXPECT_FALSE(wrong([](ExchangeTerms* terms) { terms->size_bytes = uint64_t{1} << 40U; }).empty());
  EXPECT_FALSE(DecodeTerms("\xff").ok());
  EXPECT_FALSE(DecodeTerms("").ok());
  // A reduction, a dtype, and a run of ranks that are none.
  for (const std::string& field :
       {std::string("\x20\x09"), std::string("\x18\x63"), std::string("\x2a\x02\x01\x00", 4),
        std::string("\x2a\x06\x00\xff\xff\xff\xff\x0f", 8), std::string("\x2a\x01\x01")}) {
    EXPECT_FALSE(DecodeTerms(Encode(Terms()) + field).ok()) << field;
  }
}

TEST(ExchangeTerms, CutAnExchangeAlikeOnAllWorkers) {
  const ExchangeTerms terms = Terms();
  ASSERT_EQ(NumPartitions(terms), 3U);
  EXPECT_EQ(PartitionOf(terms, 1).offset_bytes, 128U);
  EXPECT_EQ(PartitionOf(terms, 1).size_bytes, 128U);
  EXPECT_EQ(PartitionOf(terms, 2).size_bytes, 44U);
  ExchangeTerms empty = terms;
  empty.size_bytes = 0;
  EXPECT_EQ(NumPartitions(empty), 1U);
  EXPECT_EQ(PartitionOf(empty, 0).size_bytes, 0U);
  constexpr uint64_t kLeast = 128U << 10U;
  EXPECT_EQ(ExchangePartitionBytes(0, kLeast), kLeast);
  EXPECT_EQ(ExchangePartitionBytes((64U << 20U) - 1, kLeast), kLeast);
  EXPECT_EQ(ExchangePartitionBytes(64U << 20U, kLeast), 2 * kLeast);
  EXPECT_EQ(ExchangePartitionBytes(uint64_t{1} << 34U, kLeast), 8 * kLeast);
  for (const uint64_t size_bytes : {uint64_t{1} << 40U, (uint64_t{1} << 42U) + 12345}) {
    ExchangeTerms large = terms;
    large.size_bytes = size_bytes / 4 * 4;
    large.partition_bytes = ExchangePartitionBytes(large.size_bytes, 64);
    EXPECT_TRUE(CheckTerms(large).ok()) << CheckTerms(large).message();
  }
}

TEST(ExchangeTerms, AreDescribedForPeople) {
  EXPECT_SNAPSHOT(
      Describe(Terms()),
      R"snap('all_reduce #7' (max of int32 of 300 bytes from workers 0, 1, 2, 5, 9, 10 to worker 3))snap");
  ExchangeTerms copied = Terms();
  copied.givers = {1};
  EXPECT_SNAPSHOT(Describe(copied),
                  R"snap('all_reduce #7' (int32 of 300 bytes from worker 1 to worker 3))snap");
}

TEST(TakenPartitions, AreTheSameBehindTheWire) {
  const std::vector<TakenPartition> taken = {{.key = 7, .partition = 3}, {}, {UINT64_MAX, 1}};
  const Result<std::vector<TakenPartition>> read = DecodeTaken(Encode(taken));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value(), taken);
  EXPECT_TRUE(DecodeTaken("").value().empty());
  EXPECT_FALSE(DecodeTaken("\xff").ok());
  EXPECT_FALSE(DecodeTaken(std::string("\x0a\x01\xff", 3)).ok());
}

TEST(TakenPartitions, OneRequestHasABoundedNumber) {
  std::vector<TakenPartition> taken(kMostTakenPartitions, TakenPartition{.key = 1});
  EXPECT_TRUE(DecodeTaken(Encode(taken)).ok());
  taken.emplace_back(TakenPartition{.key = 1});
  EXPECT_EQ(DecodeTaken(Encode(taken)).status().message(), "more than 1024 partitions");
}

}  // namespace
}  // namespace bs::protocol
