// The row of fp16: golden codes, and sums of many workers.
#include "codec/fp16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace bs::codec {
namespace {

std::vector<uint16_t> InFp16(const std::vector<float>& values) {
  std::vector<uint16_t> codes(values.size());
  Fp16Codec().encode({}, {}, values.data(), nullptr, codes.data(), values.size());
  return codes;
}

TEST(Fp16, CodesAreTheNearestEvenFloat16) {
  EXPECT_EQ(InFp16({1, -2, 1.00048828125F, 1.00146484375F, 65504, 65520, 0x1p-24F}),
            (std::vector<uint16_t>{0x3c00, 0xc000, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0001}));
  EXPECT_EQ(InFp16({NAN, -0.0F}), (std::vector<uint16_t>{0x7e00, 0x8000}));
}

// 64 gradients of 2,000: their sum, 128,000, is beyond the largest float16.
TEST(Fp16, ASumOfManyWorkersDoesNotOverflow) {
  const Codec codec = Fp16Codec();
  const std::vector<float> gradient(5, 2000);
  std::vector<uint16_t> codes(5);
  std::vector<float> sum(5);
  codec.encode({}, {.rank = 1}, gradient.data(), nullptr, codes.data(), 5);
  for (uint32_t rank = 0; rank < 64; ++rank)
    codec.add({}, {.rank = rank}, codes.data(), sum.data(), 5);
  ASSERT_EQ(sum, std::vector<float>(5, 128000));
  const Place of_sum{.rank = kServerRank, .num_workers = 64};
  codec.encode({}, of_sum, sum.data(), nullptr, codes.data(), 5);
  std::vector<float> decoded(5);
  codec.decode({}, of_sum, codes.data(), decoded.data(), 5);
  EXPECT_EQ(decoded, sum);
}

// The divisor is a power of two, so nothing is rounded twice.
TEST(Fp16, ASumIsDividedByThePowerOfTwoThatIsNoLess) {
  const Codec codec = Fp16Codec();
  for (const auto& [workers, divisor] : std::vector<std::pair<uint32_t, float>>{
           {1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {64, 64}, {65, 128}}) {
    const float sum = 1000;
    uint16_t code = 0;
    codec.encode({}, {.rank = kServerRank, .num_workers = workers}, &sum, nullptr, &code, 1);
    float value = 0;
    codec.decode({}, {.rank = 0}, &code, &value, 1);
    EXPECT_EQ(value * divisor, sum) << workers;
  }
}

// A host of eight workers, whose gradients fit and whose sum does not.
TEST(Fp16, ASumOfAHostDoesNotOverflow) {
  constexpr size_t kCount = 300;  // more than are added at a time
  const Codec codec = Fp16Codec();
  const Place of_host{.rank = 2, .num_workers = 8};
  const std::vector<float> sum(kCount, 128000);
  std::vector<uint16_t> codes(kCount);
  codec.encode({}, of_host, sum.data(), nullptr, codes.data(), kCount);
  std::vector<float> total(kCount, 0.5F);
  codec.add({}, of_host, codes.data(), total.data(), kCount);
  EXPECT_EQ(total, std::vector<float>(kCount, 128000.5F));
  codec.decode({}, of_host, codes.data(), total.data(), kCount);
  EXPECT_EQ(total, sum);
}

}  // namespace
}  // namespace bs::codec
