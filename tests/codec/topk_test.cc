// The largest elements, bounds, conservation, and codes that lie.
#include "codec/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "codec/pick_coder.h"

namespace bs::codec {
namespace {

using testing::PickCoder;
constexpr size_t kUnitOfTopk = 65536;

PickCoder Topk(const char* k, size_t count, const char* ef = nullptr) {
  std::vector<Option> options = {{"k", k}};
  if (ef != nullptr) options.push_back({"ef", ef});
  return {"topk", options, count};
}

std::vector<std::byte> BytesOf(const std::vector<uint16_t>& indices,
                               const std::vector<float>& values) {
  std::vector<std::byte> bytes(indices.size() * 2 + values.size() * 4);
  std::memcpy(bytes.data(), indices.data(), indices.size() * 2);
  std::memcpy(bytes.data() + indices.size() * 2, values.data(), values.size() * 4);
  return bytes;
}

TEST(Topk, IndicesComeFirstAndThenTheirValues) {
  PickCoder coder = Topk("0.5", 8, "vanilla");
  const std::vector<std::byte> codes = coder.Encode({1, -3, 3, 2, -2, 2, 0, 4});
  EXPECT_EQ(codes, BytesOf({1, 2, 3, 7}, {-3, 3, 2, 4}));
  EXPECT_EQ(coder.residual, (std::vector<float>{1, 0, 0, 0, -2, 2, 0, 0}));
  EXPECT_EQ(coder.Decode(codes, 8), (std::vector<float>{0, -3, 3, 2, 0, 0, 0, 4}));
  EXPECT_EQ(coder.Add(codes, std::vector<float>(8, 10)),
            (std::vector<float>{10, 7, 13, 12, 10, 10, 10, 14}));
}

// Indices of the `picks` largest magnitudes, and of those that are equal the first.
std::vector<uint16_t> LargestOf(const std::vector<float>& in, size_t picks) {
  std::vector<uint16_t> indices(in.size());
  std::iota(indices.begin(), indices.end(), uint16_t{0});
  std::stable_sort(indices.begin(), indices.end(), [&](uint16_t left, uint16_t right) {
    return std::fabs(in[left]) > std::fabs(in[right]);
  });
  indices.resize(picks);
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Elements in an order that makes it hard to tell early which are the largest.
std::vector<float> UnitInOrder(int order) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> in(kUnitOfTopk);
  for (size_t i = 0; i < in.size(); ++i) {
    const auto rising = static_cast<float>(i + 1);
    switch (order) {
      case 0:
        in[i] = normal(random);
        break;
      case 1:
        in[i] = i % 2 == 0 ? rising : -rising;
        break;
      case 2:
        in[i] = -1 / rising;
        break;
      case 3:
        in[i] = i % 5 == 0 ? 2.0F : -1.0F;  // many are equal
        break;
      default:
        in[i] = i % 999 == 0 ? normal(random) : 0.0F;  // most are 0
    }
  }
  return in;
}

TEST(Topk, PicksTheLargestAndTheFirstOfEqualElements) {
  for (int order = 0; order < 5; ++order) {
    const std::vector<float> in = UnitInOrder(order);
    for (const char* const k : {"0.0001", "0.01", "0.0625", "0.07", "0.4"}) {
      PickCoder coder = Topk(k, 0);
      const std::vector<std::byte> codes = coder.Encode(in);
      std::vector<uint16_t> indices(codes.size() / 6);
      std::memcpy(indices.data(), codes.data(), 2 * indices.size());
      EXPECT_EQ(indices, LargestOf(in, indices.size())) << "order " << order << ", k " << k;
    }
  }
}

TEST(Topk, AnElementThatIsNotFiniteIsFoundWhereverItIs) {
  for (const size_t at : {size_t{0}, size_t{9000}, kUnitOfTopk - 1}) {
    for (const char* const k : {"0.01", "0.4"}) {
      std::vector<float> in = UnitInOrder(1);
      in[at] = -std::numeric_limits<float>::infinity();
      PickCoder coder = Topk(k, 0);
      EXPECT_TRUE(std::isnan(coder.Decode(coder.Encode(in), in.size())[0])) << at << " " << k;
    }
  }
}

TEST(Topk, ElementsThatStayComeLater) {
  PickCoder coder = Topk("0.5", 4, "vanilla");
  coder.Encode({1, 2, 3, 4});
  EXPECT_EQ(coder.Encode({0, 0, 0, 0}), BytesOf({0, 1}, {1, 2}));
  coder.Encode({1, 2, 3, 4});
  coder.place.ratio = 0.5F;
  EXPECT_EQ(coder.Encode({0, 0, 0, 0}), BytesOf({0, 1}, {0.5F, 1}));
}

TEST(Topk, APickHasSixBytesOrFour) {
  for (const char* const fp16 : {"False", "True"}) {
    const PickCoder coder("topk", {{"k", "0.01"}, {"fp16", fp16}}, 0);
    const uint64_t pick = std::string(fp16) == "True" ? 4 : 6;
    const auto bytes = [&](uint64_t count) {
      return coder.codec.encoded_bytes(coder.coding.parameters, count);
    };
    EXPECT_EQ(bytes(0), 0U);
    EXPECT_EQ(bytes(1), pick);
    EXPECT_EQ(bytes(kUnitOfTopk), 655 * pick);
    EXPECT_EQ(bytes(2 * kUnitOfTopk + 1), (2 * 655 + 1) * pick);
  }
}

TEST(Topk, SumsAreCodedAnewWithAResidualOfTheServer) {
  const PickCoder coder = Topk("0.5", 4, "corrected");
  const Coding of_sums = Builtin().OfSums(coder.coding);
  EXPECT_EQ(of_sums.feedback, Feedback::kCorrected);
  EXPECT_TRUE(Builtin().KeepsResidual(of_sums));
}

// U3: what remains is at most (1 - k / n) of the square.
TEST(Topk, CodesAreAContraction) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 20; ++trial) {
    PickCoder coder = Topk("0.1", 1000, "vanilla");
    std::vector<float> in(1000);
    for (float& value : in) value = normal(random) * normal(random);
    coder.Encode(in);
    double all = 0;
    double rest = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      all += static_cast<double>(in[i]) * in[i];
      rest += static_cast<double>(coder.residual[i]) * coder.residual[i];
    }
    EXPECT_LE(rest, 0.9 * all);
  }
}

// U4: a worker's gradients, or a server's sums.
TEST(Topk, NothingIsLostInAThousandRounds) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> whole(-9, 9);
  for (const uint32_t rank : {uint32_t{1}, kServerRank}) {
    PickCoder coder = Topk("0.1", 50, "vanilla");
    coder.place.rank = rank;
    std::vector<float> given(50);
    std::vector<float> sent(50);
    for (int round = 0; round < 1000; ++round) {
      std::vector<float> in(50);
      for (size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<float>(whole(random));
        given[i] += in[i];
      }
      sent = coder.Add(coder.Encode(in), sent);
    }
    for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(sent[i] + coder.residual[i], given[i]);
  }
}

TEST(Topk, CodesThatLieAreRefused) {
  const PickCoder coder = Topk("0.5", 4);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto check = [&](const std::vector<uint16_t>& indices, const std::vector<float>& values) {
    return coder.Check(BytesOf(indices, values), 4).message();
  };
  EXPECT_EQ(check({0, 3}, {1, 2}), "");
  EXPECT_EQ(check({1, 2}, {nan, nan}), "");
  EXPECT_SNAPSHOT(check({0, 4}, {1, 2}), "index 4 of a unit of 4 elements");
  EXPECT_SNAPSHOT(check({2, 2}, {1, 2}), "index 2 of a unit is not above the index before it");
  EXPECT_SNAPSHOT(check({3, 1}, {1, 2}), "index 1 of a unit is not above the index before it");
  EXPECT_SNAPSHOT(check({0, 1}, {1, nan}), "some values of a unit are NaN, others are not");
  EXPECT_SNAPSHOT(check({0, 1}, {inf, 1}), "a value of a unit is infinite");
  PickCoder two_units = Topk("0.5", 0);
  std::vector<std::byte> codes = two_units.Encode(std::vector<float>(kUnitOfTopk + 4, 1));
  EXPECT_TRUE(two_units.Check(codes, kUnitOfTopk + 4).ok());
  codes[kUnitOfTopk / 2 * 6] = std::byte{9};
  EXPECT_FALSE(two_units.Check(codes, kUnitOfTopk + 4).ok()) << "of the second unit";
}

TEST(Topk, AUnitThatIsNotFiniteIsNanAndLeavesItsResidual) {
  PickCoder coder = Topk("0.01", kUnitOfTopk + 8, "vanilla");
  coder.residual.assign(kUnitOfTopk + 8, 2);
  coder.place.ratio = 0.5F;
  std::vector<float> in(kUnitOfTopk + 8, 1);
  in[5] = std::numeric_limits<float>::infinity();
  const std::vector<std::byte> codes = coder.Encode(in);
  const std::vector<float> values = coder.Decode(codes, in.size());
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[kUnitOfTopk - 1]));
  EXPECT_EQ(values[kUnitOfTopk], 2) << "the next unit is 1 + 0.5 * 2";
  EXPECT_EQ(coder.residual[5], 1);
  EXPECT_EQ(coder.residual[kUnitOfTopk], 0);
  const std::vector<float> sum = coder.Add(codes, std::vector<float>(in.size(), 3));
  EXPECT_EQ(testing::BitsOfFloats(sum)[7], 0x7fc00000U);
}

}  // namespace
}  // namespace bs::codec
