// Rounds whose contributions are two-bit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "base/snapshot.h"
#include "server/bench.h"

namespace bs::server {
namespace {

constexpr uint64_t kCount = 18;  // two words, the second with two codes

// The codes of `kCount` elements: as many as given, the others 0.
std::vector<std::byte> Words(std::initializer_list<unsigned> codes) {
  std::vector<std::byte> words(8);
  size_t i = 0;
  for (const unsigned code : codes) {
    words[i / 4] |= static_cast<std::byte>(code << (6 - 2 * (i % 4)));
    ++i;
  }
  return words;
}

class TwoBitBench : public SlotBench {
 public:
  explicit TwoBitBench(int32_t num_workers, uint64_t hold_bytes = 0)
      : SlotBench({.num_workers = num_workers, .deterministic = false, .hold_bytes = hold_bytes}) {
    Round(0, std::vector<float>(kCount, 9));
  }
  // Returns the text of the only response; empty if it is ok.
  std::string TextFor(const Ask& ask) {
    const std::vector<ps::Message> responses = Do(ask);
    EXPECT_EQ(responses.size(), 1U);
    if (responses.empty()) return "no response";
    EXPECT_EQ(CodeOf(responses[0]),
              TextOf(responses[0]).empty() ? StatusCode::kOk : StatusCode::kInvalidArgument);
    return TextOf(responses[0]);
  }
  std::vector<float> Sum(uint64_t round) {
    return ToFloats(PullNow(0, round, kCount * sizeof(float)).data.at(0).bytes());
  }
};

std::vector<float> Start(std::initializer_list<float> first) {
  std::vector<float> values(first);
  values.resize(kCount, 0);
  return values;
}

TEST(SlotTwoBit, ASumIsThatOfTheValues) {
  TwoBitBench bench(3);
  EXPECT_EQ(bench.TextFor(PushTwoBit(0, 1, 0.5F, kCount, Words({3, 2, 3, 0, 1}))), "");
  EXPECT_EQ(bench.TextFor(PushTwoBit(2, 1, 0.5F, kCount, Words({3, 2, 0, 0, 3}))), "");
  EXPECT_EQ(bench.TextFor(PushTwoBit(1, 1, 0.5F, kCount, Words({3, 3, 2, 0, 0}))), "");
  EXPECT_EQ(bench.Sum(1), Start({1.5F, -0.5F, 0, 0, 0.5F}));
}

TEST(SlotTwoBit, RoundsOfAnyCodingFollowOneAnother) {
  TwoBitBench bench(1);
  EXPECT_EQ(bench.Sum(0), std::vector<float>(kCount, 9));
  EXPECT_EQ(bench.TextFor(PushTwoBit(0, 1, 0.5F, kCount, Words({3}))), "");
  EXPECT_EQ(bench.Sum(1), Start({0.5F}));
  EXPECT_EQ(bench.TextFor(PushTwoBit(0, 2, 2, kCount, Words({0, 2}))), "");
  EXPECT_EQ(bench.Sum(2), Start({0, -2}));
  EXPECT_EQ(bench.TextFor(Push(0, 3, Floats(std::vector<float>(kCount, 4)))), "");
  EXPECT_EQ(bench.Sum(3), std::vector<float>(kCount, 4));
  EXPECT_EQ(bench.TextFor(PushTwoBit(0, 2, 2, kCount, Words({3, 3}))), "")
      << "a repeat counts nothing";
  EXPECT_EQ(bench.Sum(2), Start({0, -2}));
}

Ask PushForCodedSums(int32_t rank, uint64_t round, std::initializer_list<unsigned> codes) {
  Ask ask = PushTwoBit(rank, round, 0.5F, kCount, Words(codes));
  ask.coding.sums = SumsTravel::kSame;
  return ask;
}

// Of each element a threshold arrives in a round, until all of the sum has.
TEST(SlotTwoBit, ASumThatTravelsInTwoBitsKeepsTheRestForLaterRounds) {
  using Codes = std::initializer_list<unsigned>;
  TwoBitBench bench(2);
  const auto sum_of = [&](uint64_t round, Codes codes_of_0, Codes codes_of_1) {
    EXPECT_EQ(bench.TextFor(PushForCodedSums(0, round, codes_of_0)), "");
    EXPECT_EQ(bench.TextFor(PushForCodedSums(1, round, codes_of_1)), "");
    return ToBytes(bench.PullNow(0, round, kCount * sizeof(float)).data.at(0));
  };
  EXPECT_EQ(sum_of(1, {3, 2, 3}, {3, 2, 0}), Words({3, 2, 3}));
  EXPECT_EQ(sum_of(2, {}, {3, 2, 0, 2}), Words({3, 2, 0, 2}));
  EXPECT_EQ(sum_of(3, {}, {}), Words({3, 2}));
  EXPECT_EQ(sum_of(4, {}, {}), Words({})) << "nothing is left";
}

TEST(SlotTwoBit, WorkersWithOtherPullsAreRefused) {
  TwoBitBench bench(2);
  EXPECT_EQ(bench.TextFor(PushForCodedSums(0, 1, {3})), "");
  EXPECT_THAT(bench.TextFor(PushTwoBit(1, 1, 0.5F, kCount, Words({3}))),
              testing::HasSubstr("threshold 0.5, that of worker 0 is compressed to two bits with "
                                 "threshold 0.5, pull same; set gradient compression alike"));
}

// Rounding makes the order matter: it is that of the ranks.
TEST(SlotTwoBit, EarlyPushesAreHeldByTheirBytesAndSummedByRank) {
  const float expected = ((0.1F + 0.1F) + 0.1F) - 0.1F;
  ASSERT_NE(expected, ((-0.1F + 0.1F) + 0.1F) + 0.1F);
  struct Case {
    std::vector<int32_t> order;
    uint64_t most_held;
  };
  for (const Case& c : {Case{{0, 1, 2, 3}, 0}, {{3, 2, 1, 0}, 3 * 8U}, {{2, 0, 3, 1}, 2 * 8U}}) {
    TwoBitBench bench(4, 1U << 20U);
    uint64_t most_held = 0;
    for (const int32_t rank : c.order) {
      EXPECT_EQ(bench.TextFor(PushTwoBit(rank, 1, 0.1F, kCount, Words({rank < 3 ? 3U : 2U}))), "");
      most_held = std::max(most_held, bench.state.early_bytes);
    }
    EXPECT_EQ(bench.Sum(1), Start({expected}));
    EXPECT_EQ(bench.state.early_bytes, 0U);
    EXPECT_EQ(most_held, c.most_held);
  }
}

TEST(SlotTwoBit, WorkersThatDifferAreRefusedWithBothNames) {
  TwoBitBench bench(3);
  EXPECT_EQ(bench.TextFor(PushTwoBit(1, 1, 0.5F, kCount, Words({3}))), "");
  EXPECT_SNAPSHOT(
      bench.TextFor(PushTwoBit(2, 1, 0.25F, kCount, Words({3}))),
      "push key=7 round=1 partition=0 from worker 2: it is compressed to two bits with "
      "threshold 0.25, that of worker 1 is compressed to two bits with threshold 0.5; set "
      "gradient compression alike on all workers");
  EXPECT_SNAPSHOT(
      bench.TextFor(Push(0, 1, Floats(std::vector<float>(kCount, 1)))),
      "push key=7 round=1 partition=0 from worker 0: it is not compressed, that of worker 1 "
      "is compressed to two bits with threshold 0.5; set gradient compression alike on all "
      "workers");
}

TEST(SlotTwoBit, ACodedPushAmongPlainPushesIsRefused) {
  TwoBitBench bench(2);
  EXPECT_EQ(bench.TextFor(Push(0, 1, Floats(std::vector<float>(kCount, 1)))), "");
  EXPECT_THAT(bench.TextFor(PushTwoBit(1, 1, 0.5F, kCount, Words({3}))),
              testing::HasSubstr("threshold 0.5, that of worker 0 is not compressed"));
}

TEST(SlotTwoBit, OnlySumsOfFloat32AreCoded) {
  TwoBitBench bench(1);
  Ask halves = PushTwoBit(0, 1, 0.5F, kCount, Words({3}));
  halves.dtype = DType::kFloat16;
  EXPECT_THAT(bench.TextFor(halves),
              testing::HasSubstr("for sums of float32, not for float16 of 72"));
  EXPECT_THAT(bench.TextFor(PushTwoBit(0, 0, 0.5F, kCount, Words({3}))),
              testing::HasSubstr("not for initial values"));
  EXPECT_THAT(bench.TextFor(PushTwoBit(0, 1, 0.5F, kCount + 100, Words({3}))),
              testing::HasSubstr("8 bytes came, 32 were announced"));
  EXPECT_THAT(bench.TextFor(PushTwoBit(0, 1, 0.5F, kCount - 1, Words({3}))),
              testing::HasSubstr("it has float32 of 68 bytes"));
  for (const float threshold : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(bench.TextFor(PushTwoBit(0, 1, threshold, kCount, Words({3}))),
                testing::HasSubstr("want a finite number greater than 0"));
  }
}

}  // namespace
}  // namespace bs::server
