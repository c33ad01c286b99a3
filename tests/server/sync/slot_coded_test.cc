// Rounds whose gradients and sums travel coded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/snapshot.h"
#include "codec/bf16.h"
#include "codec/codec.h"
#include "protocol/data_body.h"
#include "server/bench.h"

namespace bs::server {
namespace {

constexpr uint64_t kCodedCount = 3;
constexpr uint64_t kCodedBytes = kCodedCount * sizeof(float);
const Coding kBf16{.codec = 3, .sums = SumsTravel::kSame};
const Coding kFp16{.codec = 2, .sums = SumsTravel::kSame};

std::vector<std::byte> CodesFor(const Coding& coding, const std::vector<float>& values) {
  const codec::Codec& codec = codec::Builtin().Get(coding);
  std::vector<std::byte> codes(codec.encoded_bytes(coding.parameters, values.size()));
  codec.encode(coding.parameters, {}, values.data(), nullptr, codes.data(), values.size());
  return codes;
}

Ask PushCoded(int32_t rank, uint64_t round, const Coding& coding,
              const std::vector<float>& values) {
  Ask ask = Push(rank, round, CodesFor(coding, values));
  ask.size_bytes = values.size() * sizeof(float);
  ask.coding = coding;
  return ask;
}

// By topk, whose sums travel plain.
Coding PicksOf(std::string_view k) {
  const std::string_view name = "topk";
  const codec::Option options[] = {{"k", k}, {"pull", "plain"}};
  return codec::Builtin().Parse(&name, options).value();
}

class CodedBench : public SlotBench {
 public:
  explicit CodedBench(int32_t num_workers, uint64_t hold_bytes = uint64_t{1} << 20U)
      : SlotBench({.num_workers = num_workers, .deterministic = false, .hold_bytes = hold_bytes}) {
    Round(0, std::vector<float>(kCodedCount, 9));
  }
  // The values of a sum as a worker decodes it, and how it came.
  std::vector<float> Sum(int32_t rank, uint64_t round, const Coding& expected = {}) {
    const ps::Message answer = PullNow(rank, round, kCodedBytes);
    const auto body = protocol::DecodeResponse(ps::Op::kPull, answer.meta.extension.body).value();
    EXPECT_EQ(body.coding, expected);
    EXPECT_EQ(body.size_bytes, kCodedBytes);
    const std::span<const std::byte> bytes = answer.data.at(0).bytes();
    if (expected.plain()) return ToFloats(bytes);
    EXPECT_EQ(bytes.size(), codec::Builtin().SentBytes(expected, kCodedBytes));
    std::vector<float> values(kCodedCount);
    const codec::Place place{.rank = codec::kServerRank,
                             .num_workers = static_cast<uint32_t>(state.view->num_workers())};
    codec::Builtin().Get(expected).decode({}, place, bytes.data(), values.data(), kCodedCount);
    return values;
  }
};

TEST(SlotCoded, CodesAreAddedInFloat32AndTheSumTravelsCoded) {
  CodedBench bench(3);
  // In bfloat16 1 + 1/512 is 1: the sum is not rounded before it is complete.
  for (const int32_t rank : {2, 0, 1}) {
    bench.DoOk(PushCoded(rank, 1, kBf16, {rank == 0 ? 1.0F : 1.0F / 256, 5, -2}));
  }
  for (const int32_t rank : {0, 1, 2}) {
    EXPECT_EQ(bench.Sum(rank, 1, codec::Bf16Coding()),
              (std::vector<float>{1 + 2.0F / 256, 15, -6}));
  }
}

TEST(SlotCoded, TimesOfARoundNameItsCodec) {
  CodedBench bench(2);
  std::vector<std::string_view> told;
  bench.state.on_round = [&told](const RoundTimes& times) { told.push_back(times.coding); };
  for (const int32_t rank : {0, 1}) bench.DoOk(PushCoded(rank, 1, kFp16, {1, 2, 3}));
  bench.Round(2, {1, 2, 3});
  for (const int32_t rank : {0, 1}) bench.DoOk(PushCoded(rank, 3, kBf16, {1, 2, 3}));
  EXPECT_THAT(told, ::testing::ElementsAre("fp16", "", "bf16"));
}

TEST(SlotCoded, ASumMayTravelPlainOrInAnotherCodec) {
  CodedBench bench(2);
  Coding coding = kFp16;
  coding.sums = SumsTravel::kPlain;
  for (const int32_t rank : {0, 1}) bench.DoOk(PushCoded(rank, 1, coding, {1, 0.001F, 3}));
  const std::vector<float> plain = bench.Sum(0, 1);
  EXPECT_EQ(plain[0], 2);
  coding.sums = SumsTravel::kBf16;
  for (const int32_t rank : {0, 1}) bench.DoOk(PushCoded(rank, 2, coding, {1, 2, 3}));
  EXPECT_EQ(bench.Sum(0, 2, codec::Bf16Coding()), (std::vector<float>{2, 4, 6}));
}

// Rounding makes the order matter: it is that of the ranks, not of arrival, whatever may be held.
TEST(SlotCoded, SumsFollowTheRanks) {
  const std::vector<float> values = {0x1p24F, 1, 1};
  const auto sum_of = [&](std::vector<int32_t> order, uint64_t hold_bytes) {
    CodedBench bench(3, hold_bytes);
    Coding coding = kBf16;
    coding.sums = SumsTravel::kPlain;
    for (const int32_t rank : order) {
      bench.DoOk(PushCoded(rank, 1, coding,
                           std::vector<float>(kCodedCount, values[static_cast<size_t>(rank)])));
    }
    return bench.Sum(0, 1)[0];
  };
  EXPECT_EQ(sum_of({0, 1, 2}, 0), 0x1p24F);
  EXPECT_EQ(sum_of({2, 1, 0}, 1 << 20), 0x1p24F);
  EXPECT_EQ(sum_of({1, 2, 0}, 1 << 20), 0x1p24F);
  EXPECT_EQ(sum_of({2, 1, 0}, 0), 0x1p24F) << "in the order of arrival it is two more";
  EXPECT_EQ(sum_of({1, 2, 0}, 0), 0x1p24F);
}

// One worker sends -0, the other does not send that element.
TEST(SlotCoded, SignsOfSparseSumsDoNotDependOnWhichWorkerComesFirst) {
  const std::vector<std::vector<float>> gradients = {{-0.0F, 5, 0, 0}, {0, 0, 3, 4}};
  const auto sum_of = [&](const std::vector<int32_t>& order) {
    SlotBench bench(2);
    bench.Round(0, std::vector<float>(4));
    for (const int32_t rank : order) {
      bench.DoOk(PushCoded(rank, 1, PicksOf("0.5"), gradients[static_cast<size_t>(rank)]));
    }
    return ToBytes(bench.PullNow(0, 1, 4 * sizeof(float)).data.at(0));
  };
  EXPECT_EQ(sum_of({0, 1}), Floats({0, 5, 3, 4}));
  EXPECT_EQ(sum_of({1, 0}), Floats({0, 5, 3, 4}));
}

TEST(SlotCoded, RoundsOfAnyCodingFollowOneAnother) {
  CodedBench bench(1);
  EXPECT_EQ(bench.Sum(0, 0), std::vector<float>(kCodedCount, 9));
  bench.DoOk(PushCoded(0, 1, kBf16, {1, 2, 3}));
  EXPECT_EQ(bench.Sum(0, 1, codec::Bf16Coding()), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(bench.Sum(0, 0), std::vector<float>(kCodedCount, 9)) << "is still there";
  bench.DoOk(Push(0, 2, Floats({4, 5, 6})));
  EXPECT_EQ(bench.Sum(0, 2), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(bench.Sum(0, 1, codec::Bf16Coding()), (std::vector<float>{1, 2, 3}));
  bench.DoOk(PushCoded(0, 3, kFp16, {7, 8, 9}));
  EXPECT_EQ(bench.Sum(0, 3, {.codec = 2}), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(bench.Sum(0, 2), (std::vector<float>{4, 5, 6}));
  bench.DoOk(PushCoded(0, 3, kFp16, {1, 1, 1}));
  EXPECT_EQ(bench.Sum(0, 3, {.codec = 2}), (std::vector<float>{7, 8, 9})) << "a repeat";
}

// A host's sum is beyond fp16, and so it is divided by the number of its workers.
TEST(SlotCoded, ACodedSumOfAHostStandsForItsWorkers) {
  SlotBench bench({.num_workers = 5, .deterministic = false, .hosts = {0, 1, 0, 1, 2}});
  bench.Round(0, {9});
  Coding coding = kFp16;
  coding.sums = SumsTravel::kPlain;
  const auto push = [&](int32_t sender, uint32_t workers, float value) {
    Ask ask = Push(sender, 1, std::vector<std::byte>(2));
    const codec::Place place{.num_workers = workers};
    codec::Builtin().Get(coding).encode({}, place, &value, nullptr, ask.payload.data(), 1);
    ask.size_bytes = sizeof(value);
    ask.coding = coding;
    ask.stands_for = workers;
    bench.DoOk(ask);
    bench.DoOk(ask);  // a repeat
  };
  push(4, 1, 1);
  push(3, 2, -0x1p16F);
  EXPECT_TRUE(bench.Do(Pull(0, 1, 4)).empty());
  push(2, 2, 0x1p16F + 64);
  EXPECT_EQ(ToFloats(bench.PullNow(3, 1, 4).data.at(0).bytes()), std::vector<float>{65});
}

TEST(SlotCoded, ASumOfAHostInTwoBitsIsRefused) {
  SlotBench bench({.num_workers = 3, .hosts = {0, 0, 1}});
  bench.Round(0, std::vector<float>(16));
  Ask ask = PushTwoBit(1, 1, 0.5F, 16, std::vector<std::byte>(4));
  ask.stands_for = 2;
  EXPECT_SNAPSHOT(
      bench.Refused(ask).second,
      R"(push key=7 round=1 partition=0 from worker 1: it stands for 2 workers, and its host has 2; initial values and gradients in two bits are sent by each worker alone)");
}

// The answer under way keeps its codes, and the next but one round gets other memory.
TEST(SlotCoded, AnAnswerUnderWayKeepsItsBytes) {
  CodedBench bench(1);
  bench.DoOk(PushCoded(0, 1, kBf16, {1, 2, 3}));
  const ps::Message answer = bench.PullNow(0, 1, kCodedBytes);
  const std::vector<std::byte> codes = ToBytes(answer.data.at(0));
  bench.DoOk(PushCoded(0, 2, kBf16, {4, 5, 6}));
  bench.DoOk(PushCoded(0, 3, kBf16, {7, 8, 9}));
  EXPECT_EQ(ToBytes(answer.data.at(0)), codes);
  EXPECT_EQ(bench.Sum(0, 3, codec::Bf16Coding()), (std::vector<float>{7, 8, 9}));
}

TEST(SlotCoded, MemoryIsThatOfASumAndOfCodes) {
  CodedBench bench(1);
  EXPECT_EQ(bench.slot->kept_bytes(), kCodedBytes);
  bench.DoOk(PushCoded(0, 1, kBf16, {1, 2, 3}));
  EXPECT_EQ(bench.slot->kept_bytes(), 2 * kCodedBytes + kCodedBytes / 2);
  bench.DoOk(PushCoded(0, 2, kBf16, {1, 2, 3}));
  EXPECT_EQ(bench.slot->kept_bytes(), kCodedBytes + 2 * (kCodedBytes / 2));
}

TEST(SlotCoded, CodesThatAreCutOffAreRefusedBeforeAnythingIsAdded) {
  CodedBench bench(2);
  bench.DoOk(PushCoded(0, 1, kBf16, {1, 2, 3}));
  Ask cut = PushCoded(1, 1, kBf16, {4, 5, 6});
  cut.payload.pop_back();
  EXPECT_SNAPSHOT(bench.Refused(cut).second,
                  "push key=7 round=1 partition=0 from worker 1: 5 bytes came, 6 were announced");
  bench.DoOk(PushCoded(1, 1, kBf16, {4, 5, 6}));
  EXPECT_EQ(bench.Sum(0, 1, codec::Bf16Coding()), (std::vector<float>{5, 7, 9}));
}

TEST(SlotCoded, CodesThatLieAreRefusedBeforeAnythingIsAdded) {
  CodedBench bench(2);
  const Coding coding = PicksOf("2/3");
  bench.DoOk(PushCoded(0, 1, coding, {1, 2, 3}));
  Ask lie = PushCoded(1, 1, coding, {4, 5, 6});
  lie.payload.at(sizeof(uint16_t)) = std::byte{3};  // the first index is right
  const auto [code, text] = bench.Refused(lie);
  EXPECT_EQ(code, StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(text,
                  "push key=7 round=1 partition=0 from worker 1: it is compressed to topk with k "
                  "2, pull plain: index 3 of a unit of 3 elements");
  bench.DoOk(PushCoded(1, 1, coding, {4, 5, 6}));
  EXPECT_EQ(bench.Sum(0, 1), (std::vector<float>{0, 7, 9}));
}

TEST(SlotCoded, WorkersThatDifferAreRefusedWithBothCodings) {
  CodedBench bench(2);
  bench.DoOk(PushCoded(0, 1, kBf16, {1, 2, 3}));
  EXPECT_SNAPSHOT(
      bench.Refused(PushCoded(1, 1, kFp16, {1, 2, 3})).second,
      "push key=7 round=1 partition=0 from worker 1: it is compressed to fp16, that of worker 0 "
      "is compressed to bf16; set gradient compression alike on all workers");
  Ask plain_sum = PushCoded(1, 1, kBf16, {1, 2, 3});
  plain_sum.coding.sums = SumsTravel::kPlain;
  EXPECT_THAT(bench.Refused(plain_sum).second,
              testing::HasSubstr("it is compressed to bf16, pull plain, that of worker 0 is"));
}

// A key that was there travels plain once more, and its pushes say already how it goes on.
TEST(SlotCoded, APlainPushMayNameTheCodingOfLaterRounds) {
  CodedBench bench(2);
  Ask named = Push(0, 1, Floats({1, 2, 3}));
  named.size_bytes = kCodedBytes;
  named.coding = kBf16;
  named.coding.later = true;
  bench.DoOk(named);
  EXPECT_SNAPSHOT(
      bench.Refused(Push(1, 1, Floats({1, 2, 3}))).second,
      "push key=7 round=1 partition=0 from worker 1: it is not compressed, that of worker 0 is "
      "compressed to bf16 from the next round on; set gradient compression alike on all workers");
  named.rank = 1;
  bench.DoOk(named);
  EXPECT_EQ(bench.Sum(0, 1), (std::vector<float>{2, 4, 6}));
}

}  // namespace
}  // namespace bs::server
