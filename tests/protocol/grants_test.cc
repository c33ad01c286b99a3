// Readiness and grants: their bytes on the wire, and whatever else a peer may send.
#include "protocol/grants.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ps-lite/wire/golden.h"

namespace bs::protocol {
namespace {

using ps::test::FromHex;
using ps::test::ToHex;

Readiness FullReadiness() {
  return {.tensors = {{.key = 7,
                       .round = 12,
                       .size_bytes = 4096,
                       .dtype = DType::kFloat64,
                       .priority = -3,
                       .next_layout = "n"},
                      {.key = 0, .round = 1, .size_bytes = 4, .part = 2, .coded = "c"}},
          .received = 5,
          .finished = 4,
          .joined = 3,
          .failure = Status::Unavailable("why"),
          .late = true,
          .division = Division{.partition_bytes = 128, .credit_bytes = 5, .priority_order = false}};
}

GrantedOperation Fused() {
  return {{.key = 7, .round = 12, .offset_bytes = 64, .size_bytes = 32, .part = 3},
          {.key = 8, .round = 3, .offset_bytes = 0, .size_bytes = 8, .next_layout = "n"}};
}

TEST(Grants, HaveTheBytesOfTheProtocol) {
  EXPECT_EQ(ToHex(Encode(FullReadiness())),
            "0a0e"
            "0807"
            "100c"
            "188020"
            "2001"
            "2805"
            "32016e"
            "0a09"
            "1001"
            "1804"
            "4002"
            "4a0163"
            "1005"
            "1804"
            "2004"
            "2a03776879"
            "3003"
            "3801"
            "4207"
            "088001"
            "1005"
            "1801");
  const std::vector<std::string> operations = {Encode(Fused())};
  EXPECT_EQ(ToHex(EncodeGrants(9, operations)),
            "0809"
            "1217"
            "0a0a"
            "0807"
            "100c"
            "1820"
            "3840"
            "4003"
            "0a09"
            "0808"
            "1003"
            "1808"
            "32016e");
}

TEST(Grants, ComeBackAsTheyWere) {
  const Result<Readiness> readiness = DecodeReadiness(Encode(FullReadiness()));
  ASSERT_TRUE(readiness.ok()) << readiness.status().ToString();
  EXPECT_EQ(readiness.value().tensors, FullReadiness().tensors);
  EXPECT_EQ(readiness.value().received, 5U);
  EXPECT_EQ(readiness.value().finished, 4U);
  EXPECT_EQ(readiness.value().joined, 3U);
  EXPECT_TRUE(readiness.value().late);
  EXPECT_EQ(readiness.value().division, FullReadiness().division);
  EXPECT_EQ(readiness.value().failure.ToString(), "kUnavailable: why");
  const std::vector<std::string> operations = {Encode(Fused()), Encode(GrantedOperation())};
  const Result<Grants> grants = DecodeGrants(EncodeGrants(9, operations));
  ASSERT_TRUE(grants.ok());
  EXPECT_EQ(grants.value().first, 9U);
  EXPECT_EQ(grants.value().operations, (std::vector<GrantedOperation>{Fused(), {}}));
  EXPECT_TRUE(DecodeGrants(EncodeGrants(9, {})).value().operations.empty());
}

// Fields that no later version needs, tensors that no library sums.
TEST(Grants, RefuseTensorsThatMakeNoSense) {
  const auto refused = [](const ReadyTensor& tensor) {
    return !DecodeReadiness(Encode(Readiness{.tensors = {tensor}})).ok();
  };
  EXPECT_FALSE(refused({.key = 1, .round = 1, .size_bytes = 8}));
  EXPECT_FALSE(refused({.key = 1, .round = 1, .size_bytes = 8, .coded = std::string(200, 'c')}));
  EXPECT_TRUE(refused({.key = 1, .round = 1, .size_bytes = 8, .coded = std::string(201, 'c')}));
  EXPECT_TRUE(refused({.key = 1, .round = 0, .size_bytes = 8}));
  EXPECT_TRUE(refused({.key = 1, .round = 1, .size_bytes = 0}));
  EXPECT_TRUE(refused({.key = 1, .round = 1, .size_bytes = 6}));
  EXPECT_TRUE(refused({.key = 1, .round = 1, .size_bytes = uint64_t{1} << 63U}));
  EXPECT_TRUE(refused({.key = 1, .round = 1, .size_bytes = 8, .dtype = static_cast<DType>(99)}));
}

TEST(Grants, RefuseDivisionsThatMakeNoSense) {
  const auto refused = [](const Division& division) {
    return !DecodeReadiness(Encode(Readiness{.division = division})).ok();
  };
  EXPECT_FALSE(refused({.partition_bytes = 64, .credit_bytes = 1}));
  EXPECT_TRUE(refused({.partition_bytes = 63, .credit_bytes = 1}));
  EXPECT_TRUE(refused({.partition_bytes = 64, .credit_bytes = 0}));
  EXPECT_TRUE(refused({.partition_bytes = UINT64_MAX, .credit_bytes = 1}));
  EXPECT_TRUE(refused({.partition_bytes = 64, .credit_bytes = UINT64_MAX}));
}

TEST(Grants, AnyBytesAreReadOrRefused) {
  std::mt19937 random(1);
  const std::vector<std::string> operations = {Encode(Fused())};
  for (const std::string& bytes : {Encode(FullReadiness()), EncodeGrants(9, operations)}) {
    for (int i = 0; i < 20000; ++i) {
      std::string broken = bytes.substr(0, random() % (bytes.size() + 1));
      if (!broken.empty()) broken[random() % broken.size()] = static_cast<char>(random());
      static_cast<void>(DecodeReadiness(broken));
      static_cast<void>(DecodeGrants(broken));
    }
  }
  EXPECT_FALSE(DecodeGrants(FromHex("12ff")).ok());
}

}  // namespace
}  // namespace bs::protocol
