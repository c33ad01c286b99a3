// Values at places that all nodes draw alike, bounds, conservation, and sums that lose nothing.
#include "codec/randomk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/snapshot.h"
#include "codec/permutation.h"
#include "codec/pick_coder.h"

namespace bs::codec {
namespace {

using testing::PickCoder;

std::vector<size_t> FirstOf(const UnitSeed& seed, uint64_t count, size_t number) {
  Permutation permutation(seed, count);
  std::vector<size_t> indices(number);
  for (size_t& index : indices) index = permutation.Next();
  return indices;
}

TEST(Permutation, HasEachIndexOnce) {
  for (const uint64_t count : {1U, 2U, 6U, 9U, 210U, 65535U, 65536U}) {
    const std::vector<size_t> all = FirstOf({3, 7, 0, 1}, count, count);
    EXPECT_EQ(std::set<size_t>(all.begin(), all.end()).size(), count);
    EXPECT_LT(*std::max_element(all.begin(), all.end()), count);
  }
}

TEST(Permutation, DependsOnSeedKeyUnitAndRound) {
  const std::vector<size_t> usual = FirstOf({3, 7, 0, 1}, 65536, 4);
  EXPECT_EQ(FirstOf({3, 7, 0, 1}, 65536, 4), usual);
  for (const UnitSeed& other :
       {UnitSeed{4, 7, 0, 1}, UnitSeed{3, 8, 0, 1}, UnitSeed{3, 7, 1, 1}, UnitSeed{3, 7, 0, 2}}) {
    EXPECT_NE(FirstOf(other, 65536, 4), usual);
  }
}

TEST(Permutation, HasAllIndicesEquallyOften) {
  constexpr size_t kCount = 10;
  constexpr int kRounds = 10000;
  std::vector<int> seen(kCount);
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (const size_t index : FirstOf({1, 7, 0, round}, kCount, 3)) ++seen[index];
  }
  const double mean = kRounds * 0.3;
  for (const int count : seen) EXPECT_NEAR(count, mean, 5 * std::sqrt(mean * 0.7));
}

PickCoder Randomk(const char* k, size_t count, const char* ef = nullptr) {
  std::vector<Option> options = {{"k", k}, {"seed", "3"}};
  if (ef != nullptr) options.push_back({"ef", ef});
  return {"randomk", options, count};
}

std::vector<float> WholeNumbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> whole(-9, 9);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(whole(random));
  return numbers;
}

TEST(Randomk, WithFeedbackElementsTravelAsTheyAreAndTheRestIsKept) {
  PickCoder coder = Randomk("0.25", 100, "sparse");
  const std::vector<float> in = WholeNumbers(100, 1);
  const std::vector<float> values = coder.Decode(coder.Encode(in), 100);
  size_t sent = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(values[i] + coder.residual[i], in[i]);
    EXPECT_TRUE(values[i] == 0 || coder.residual[i] == 0);
    if (values[i] != 0) ++sent;
  }
  EXPECT_LE(sent, 25U);
  EXPECT_GT(sent, 15U) << "some are 0 by themselves";
}

TEST(Randomk, WithoutFeedbackTheMeanIsRight) {
  PickCoder coder = Randomk("0.25", 8);
  const std::vector<float> in = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<double> mean(8);
  constexpr int kRounds = 100000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    coder.place.round = round;
    const std::vector<float> values = coder.Decode(coder.Encode(in), 8);
    for (size_t i = 0; i < 8; ++i) mean[i] += values[i] / kRounds;
  }
  // The variance of an element x is (n / k - 1) x^2 = 3 x^2.
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(mean[i], in[i], 5 * in[i] * std::sqrt(3.0 / kRounds));
  }
}

// U3, in the mean.
TEST(Randomk, LeavesTheShareOfTheSquareThatDoesNotTravel) {
  const std::vector<float> in = WholeNumbers(1000, 2);
  double all = 0;
  for (const float value : in) all += static_cast<double>(value) * value;
  double rest = 0;
  for (uint64_t round = 0; round < 200; ++round) {
    PickCoder coder = Randomk("0.1", 1000, "vanilla");
    coder.place.round = round;
    coder.Encode(in);
    for (const float value : coder.residual) rest += static_cast<double>(value) * value / 200;
  }
  EXPECT_NEAR(rest / all, 0.9, 0.01);
}

// U4.
TEST(Randomk, NothingIsLostInAThousandRounds) {
  PickCoder coder = Randomk("0.1", 50, "vanilla");
  std::vector<float> given(50);
  std::vector<float> sent(50);
  for (uint32_t round = 0; round < 1000; ++round) {
    coder.place.round = round;
    const std::vector<float> in = WholeNumbers(50, round);
    for (size_t i = 0; i < in.size(); ++i) given[i] += in[i];
    sent = coder.Add(coder.Encode(in), sent);
  }
  for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(sent[i] + coder.residual[i], given[i]);
}

TEST(Randomk, ASumLosesNothingOnItsWayBack) {
  constexpr size_t kCount = 65536 + 100;
  for (const char* const ef : {"vanilla", static_cast<const char*>(nullptr)}) {
    std::vector<float> sum(kCount);
    Place place{.key = 7, .round = 12};
    for (uint32_t rank = 0; rank < 3; ++rank) {
      PickCoder worker = Randomk("0.01", kCount, ef);
      worker.place = place;
      worker.place.rank = rank;
      sum = worker.Add(worker.Encode(WholeNumbers(kCount, rank)), sum);
    }
    PickCoder server = Randomk("0.01", kCount);
    place.rank = kServerRank;
    place.num_workers = 3;
    server.place = place;
    EXPECT_EQ(server.Decode(server.Encode(sum), kCount), sum);
  }
}

TEST(Randomk, ServersKeepNoResidual) {
  const PickCoder coder = Randomk("0.1", 4, "sparse");
  EXPECT_TRUE(Builtin().KeepsResidual(coder.coding));
  const Coding of_sums = Builtin().OfSums(coder.coding);
  EXPECT_EQ(of_sums.feedback, Feedback::kNone);
  EXPECT_FALSE(Builtin().KeepsResidual(of_sums));
  EXPECT_EQ(of_sums.parameters, coder.coding.parameters);
}

TEST(Randomk, AServerKeepsTheRestOfASumOfHalves) {
  const PickCoder worker("randomk", {{"k", "0.5"}, {"fp16", "True"}, {"ef", "vanilla"}}, 4);
  PickCoder server = worker;
  server.coding = Builtin().OfSums(worker.coding);
  ASSERT_TRUE(Builtin().KeepsResidual(server.coding));
  server.place.rank = kServerRank;
  server.place.num_workers = 2;
  std::vector<float> sent(4);
  for (uint32_t round = 0; round < 8; ++round) {
    server.place.round = round;
    const std::vector<float> sum(4, round == 0 ? 100000.0F : 0.0F);
    sent = server.Add(server.Encode(sum), sent);
    if (round == 0) {
      EXPECT_EQ(*std::ranges::max_element(sent), 99968) << "twice the nearest half";
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(sent[i] + server.residual[i], 100000) << i;
  EXPECT_EQ(*std::ranges::max_element(sent), 100000) << "later rounds bring the rest";
}

TEST(Randomk, PlacesDependOnSeedKeyUnitAndRoundAndNotOnThePartition) {
  const std::vector<float> ones(2 * 65536, 1);
  PickCoder coder = Randomk("0.01", ones.size(), "vanilla");
  const std::vector<std::byte> whole = coder.Encode(ones);
  const std::vector<float> values = coder.Decode(whole, ones.size());
  PickCoder second = Randomk("0.01", 65536, "vanilla");
  second.place.first_element = 65536;
  const std::vector<float> half(65536, 1);
  const std::vector<std::byte> codes = second.Encode(half);
  EXPECT_EQ(second.Decode(codes, 65536), std::vector<float>(values.begin() + 65536, values.end()));
  second.place.first_element = 0;
  EXPECT_NE(second.Decode(codes, 65536), std::vector<float>(values.begin() + 65536, values.end()));
  coder.place.round = 1;
  EXPECT_NE(coder.Decode(whole, ones.size()), values);
}

TEST(Randomk, WithoutASeedItIsTheJobsNumber) {
  PickCoder coder("randomk", {{"k", "0.5"}}, 0);
  PickCoder seeded = Randomk("0.5", 0);
  const std::vector<float> in = WholeNumbers(100, 4);
  seeded.place.job = 17;
  coder.place.job = 3;
  EXPECT_EQ(coder.Encode(in), seeded.Encode(in)) << "the seed counts more than the job";
  coder.place.job = 4;
  EXPECT_NE(coder.Encode(in), seeded.Encode(in));
}

TEST(Randomk, APickHasFourBytesOrTwo) {
  const PickCoder coder = Randomk("0.01", 0);
  EXPECT_EQ(coder.codec.encoded_bytes(coder.coding.parameters, 65537), 4U * 656);
  const PickCoder halves("randomk", {{"k", "0.01"}, {"fp16", "True"}}, 0);
  EXPECT_EQ(halves.codec.encoded_bytes(halves.coding.parameters, 65537), 2U * 656);
}

TEST(Randomk, ValuesThatLieAreRefused) {
  const PickCoder coder = Randomk("0.5", 0);
  const auto check = [&](float first, float second) {
    std::vector<std::byte> codes(8);
    std::memcpy(codes.data(), &first, 4);
    std::memcpy(codes.data() + 4, &second, 4);
    return coder.Check(codes, 4).message();
  };
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(check(1, 2), "");
  EXPECT_EQ(check(nan, nan), "");
  EXPECT_SNAPSHOT(check(nan, 1), "some values of a unit are NaN, others are not");
  EXPECT_SNAPSHOT(check(1, -inf), "a value of a unit is infinite");
}

// An element that does not travel is not finite.
TEST(Randomk, AUnitThatIsNotFiniteIsNan) {
  PickCoder coder = Randomk("0.1", 10, "vanilla");
  coder.residual.assign(10, 2);
  coder.place.ratio = 0.5F;
  for (size_t at = 0; at < 10; ++at) {
    std::vector<float> in(10, 1);
    in[at] = std::numeric_limits<float>::infinity();
    coder.residual.assign(10, 2);
    const std::vector<float> values = coder.Decode(coder.Encode(in), 10);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
    EXPECT_EQ(coder.residual, std::vector<float>(10, 1));
  }
}

}  // namespace
}  // namespace bs::codec
