// Sums that travel in a codec whose residual the server keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"
#include "protocol/data_body.h"
#include "server/bench.h"

namespace bs::server {
namespace {

constexpr uint64_t kOneUnit = 5;
constexpr uint64_t kOneUnitBytes = kOneUnit * sizeof(float);

Coding OnebitWith(Feedback feedback) {
  const std::byte scaled{1};
  return {.codec = 4,
          .parameters = CodecParameters(std::span(&scaled, 1)),
          .sums = SumsTravel::kSame,
          .feedback = feedback};
}

// Signs of `values`, whose magnitudes are equal, so that nothing is lost.
Ask PushSigns(int32_t rank, uint64_t round, const Coding& coding, const std::vector<float>& values,
              float ratio = 1) {
  const codec::Codec& codec = codec::Builtin().Get(coding);
  std::vector<std::byte> codes(codec.encoded_bytes(coding.parameters, values.size()));
  codec.encode(coding.parameters, {}, values.data(), nullptr, codes.data(), values.size());
  Ask ask = Push(rank, round, std::move(codes));
  ask.size_bytes = values.size() * sizeof(float);
  ask.coding = coding;
  ask.ratio = ratio;
  return ask;
}

class FeedbackBench : public SlotBench {
 public:
  explicit FeedbackBench(Coding coding, int32_t num_workers = 2)
      : SlotBench({.num_workers = num_workers, .deterministic = true}), coding_(coding) {
    Round(0, std::vector<float>(kOneUnit));
  }
  std::vector<std::byte> SumCodes(uint64_t round) {
    return ToBytes(PullNow(0, round, kOneUnitBytes).data.at(0));
  }
  std::vector<float> Sum(uint64_t round) {
    std::vector<float> values(kOneUnit);
    codec::Builtin().Get(coding_).decode(coding_.parameters, {}, SumCodes(round).data(),
                                         values.data(), kOneUnit);
    return values;
  }
  // Two workers whose sum is {3, 1, -1, 1, 1}.
  void RoundOfTwo(uint64_t round, float ratio = 1, float ratio_of_the_other = 1) {
    DoOk(PushSigns(0, round, coding_, {2, 2, -2, 2, 2}, ratio));
    DoOk(PushSigns(1, round, coding_, {1, -1, 1, -1, -1}, ratio_of_the_other));
  }

 private:
  const Coding coding_;
};

// The sum's codes, made by a coder that has a residual as the server should have.
class SumCoder {
 public:
  std::vector<float> Sum(float ratio) {
    const Coding coding = OnebitWith(Feedback::kVanilla);
    const codec::Codec& codec = codec::Builtin().Get(coding);
    std::vector<std::byte> codes(codec.encoded_bytes(coding.parameters, kOneUnit));
    const std::array<float, kOneUnit> sum = {3, 1, -1, 1, 1};
    codec.encode(coding.parameters, {.ratio = ratio}, sum.data(), residual_.data(), codes.data(),
                 kOneUnit);
    std::vector<float> values(kOneUnit);
    codec.decode(coding.parameters, {}, codes.data(), values.data(), kOneUnit);
    return values;
  }

 private:
  std::vector<float> residual_ = std::vector<float>(kOneUnit);
};

TEST(SlotFeedback, TheRestOfASumComesLater) {
  FeedbackBench bench(OnebitWith(Feedback::kVanilla));
  SumCoder reference;
  std::vector<double> arrived(kOneUnit);
  for (uint64_t round = 1; round <= 100; ++round) {
    bench.RoundOfTwo(round);
    const std::vector<float> sum = bench.Sum(round);
    EXPECT_EQ(sum, reference.Sum(1)) << round;
    for (size_t i = 0; i < kOneUnit; ++i) arrived[i] += sum[i];
  }
  EXPECT_NEAR(arrived[0] / 100, 3, 0.1);
  EXPECT_NEAR(arrived[2] / 100, -1, 0.1);
}

TEST(SlotFeedback, WithoutItEachSumIsCodedAlone) {
  FeedbackBench bench(OnebitWith(Feedback::kNone));
  for (uint64_t round = 1; round <= 3; ++round) {
    bench.RoundOfTwo(round);
    EXPECT_EQ(bench.Sum(round), (std::vector<float>{1.4F, 1.4F, -1.4F, 1.4F, 1.4F}));
  }
}

TEST(SlotFeedback, TheFactorIsThatOfWorkerZero) {
  FeedbackBench bench(OnebitWith(Feedback::kCorrected));
  SumCoder reference;
  for (const auto& [round, ratio] : {std::pair{uint64_t{1}, 1.0F}, {2, 0.25F}, {3, 2.0F}}) {
    bench.RoundOfTwo(round, ratio, /*ratio_of_the_other=*/7);
    EXPECT_EQ(bench.Sum(round), reference.Sum(ratio)) << round;
  }
}

TEST(SlotFeedback, ARepeatGetsTheSameCodesAndTheResidualIsTakenOnce) {
  FeedbackBench bench(OnebitWith(Feedback::kVanilla));
  SumCoder reference;
  for (uint64_t round = 1; round <= 3; ++round) {
    bench.RoundOfTwo(round);
    const std::vector<std::byte> codes = bench.SumCodes(round);
    bench.RoundOfTwo(round, /*ratio=*/9);
    EXPECT_EQ(bench.SumCodes(round), codes);
    EXPECT_EQ(bench.Sum(round), reference.Sum(1));
  }
}

TEST(SlotFeedback, ASumThatIsNotFiniteLeavesTheResidual) {
  const Coding coding = OnebitWith(Feedback::kVanilla);
  FeedbackBench bench(coding);
  SumCoder reference;
  bench.RoundOfTwo(1);
  reference.Sum(1);
  const float inf = std::numeric_limits<float>::infinity();
  bench.DoOk(PushSigns(0, 2, coding, {inf, 1, 1, 1, 1}));
  bench.DoOk(PushSigns(1, 2, coding, {1, 1, 1, 1, 1}));
  for (const float value : bench.Sum(2)) EXPECT_TRUE(std::isnan(value));
  bench.RoundOfTwo(3);
  EXPECT_EQ(bench.Sum(3), reference.Sum(1));
}

// Half of the elements travel, as float16, whose largest value times two is 131,008 here.
class HalvesBench : public SlotBench {
 public:
  HalvesBench() : SlotBench({.num_workers = 2}) { Round(0, std::vector<float>(kElements)); }
  std::vector<float> SumOf(uint64_t round, const std::vector<float>& first,
                           const std::vector<float>& second) {
    DoOk(PushHalves(0, round, first));
    DoOk(PushHalves(1, round, second));
    const std::vector<std::byte> codes =
        ToBytes(PullNow(0, round, kElements * sizeof(float)).data.at(0));
    std::vector<float> sum(kElements);
    const codec::Place place{.rank = codec::kServerRank, .num_workers = 2};
    codec_.decode(coding_.parameters, place, codes.data(), sum.data(), kElements);
    return sum;
  }

 private:
  static constexpr size_t kElements = 4;

  static Coding Asked() {
    const std::string_view name = "topk";
    const codec::Option options[] = {{"k", "0.5"}, {"fp16", "True"}, {"ef", "vanilla"}};
    return codec::Builtin().Parse(&name, options).value();
  }
  Ask PushHalves(int32_t rank, uint64_t round, const std::vector<float>& values) const {
    std::vector<std::byte> codes(codec_.encoded_bytes(coding_.parameters, kElements));
    codec_.encode(coding_.parameters, {}, values.data(), nullptr, codes.data(), kElements);
    Ask ask = Push(rank, round, std::move(codes));
    ask.size_bytes = kElements * sizeof(float);
    ask.coding = coding_;
    return ask;
  }

  const Coding coding_ = Asked();
  const codec::Codec& codec_ = codec::Builtin().Get(coding_);
};

TEST(SlotFeedback, TheRestOfASumThatHalvesCannotHoldComesLater) {
  HalvesBench bench;
  constexpr float kMost = 65504;
  EXPECT_EQ(bench.SumOf(1, {kMost, kMost, 0, 0}, {0, 0, kMost, kMost}),
            (std::vector<float>{kMost, kMost, 0, 0}));
  EXPECT_EQ(bench.SumOf(2, {0, 0, kMost, kMost}, {0, 0, kMost, kMost}),
            (std::vector<float>{0, 0, 2 * kMost, 2 * kMost}))
      << "the sum and the residual are three times as much";
  EXPECT_EQ(bench.SumOf(3, {0, 0, 0, 0}, {0, 0, 0, 0}), (std::vector<float>{0, 0, kMost, kMost}));
  EXPECT_EQ(bench.SumOf(4, {0, 0, 0, 0}, {0, 0, 0, 0}), std::vector<float>(4));
}

TEST(SlotFeedback, MemoryCountsTheResidual) {
  FeedbackBench bench(OnebitWith(Feedback::kVanilla));
  bench.RoundOfTwo(1);
  bench.RoundOfTwo(2);
  constexpr uint64_t kCodes = 4 + 1;
  EXPECT_EQ(bench.slot->kept_bytes(), 2 * kOneUnitBytes + 2 * kCodes);
}

TEST(SlotFeedback, SumsThatTravelPlainHaveNone) {
  Coding coding = OnebitWith(Feedback::kVanilla);
  coding.sums = SumsTravel::kPlain;
  FeedbackBench bench(coding);
  for (uint64_t round = 1; round <= 2; ++round) {
    bench.RoundOfTwo(round);
    EXPECT_EQ(ToFloats(bench.SumCodes(round)), (std::vector<float>{3, 1, -1, 1, 1}));
  }
  EXPECT_EQ(bench.slot->kept_bytes(), 2 * kOneUnitBytes);
}

TEST(SlotFeedback, AFactorThatIsNoneIsRefusedBeforeAnythingIsAdded) {
  const Coding coding = OnebitWith(Feedback::kVanilla);
  FeedbackBench bench(coding);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_SNAPSHOT(
      bench.Refused(PushSigns(0, 1, coding, {1, 1, 1, 1, 1}, nan)).second,
      "push key=7 round=1 partition=0 from worker 0: it is compressed to onebit "
      "scaled, ef vanilla, and its factor of the residual is nan: want a number from 0 to "
      "2^40");
  bench.Refused(PushSigns(0, 1, coding, {1, 1, 1, 1, 1}, -1));
  bench.Refused(PushSigns(0, 1, coding, {1, 1, 1, 1, 1}, 3e38F));
  bench.RoundOfTwo(1);
  EXPECT_EQ(bench.Sum(1), SumCoder().Sum(1));
}

TEST(SlotFeedback, WorkersThatDifferInItAreRefusedWithBoth) {
  FeedbackBench bench(OnebitWith(Feedback::kVanilla));
  bench.DoOk(PushSigns(0, 1, OnebitWith(Feedback::kVanilla), {1, 1, 1, 1, 1}));
  EXPECT_SNAPSHOT(
      bench.Refused(PushSigns(1, 1, OnebitWith(Feedback::kCorrected), {1, 1, 1, 1, 1})).second,
      "push key=7 round=1 partition=0 from worker 1: it is compressed to onebit scaled, ef "
      "corrected, that of worker 0 is compressed to onebit scaled, ef vanilla; set gradient "
      "compression alike on all workers");
}

}  // namespace
}  // namespace bs::server
