// Sums keep subnormals in a thread where a library built with -ffast-math has turned them off.
#include <gtest/gtest.h>

#include <bit>

#include "base/flush_to_zero.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

TEST(SumTest, KeepsSubnormalsWhereTheThreadDoesNot) {
  for (const Kernels* kernels : AvailableKernels()) {
    uint32_t accumulator = 0x00000003;  // 3 * 2^-149
    const uint32_t addend = 0x00000004;
    uint16_t bfloat = 0x0003;
    const uint16_t bfloat_addend = 0x0004;
    uint16_t half = 0x0003;  // 3 * 2^-24
    const uint16_t half_addend = 0x0004;
    {
      const FlushToZero flush;
      Sum(*kernels, DType::kFloat32, &accumulator, &addend, 1);
      Sum(*kernels, DType::kBfloat16, &bfloat, &bfloat_addend, 1);
      Sum(*kernels, DType::kFloat16, &half, &half_addend, 1);
    }
    EXPECT_EQ(accumulator, 0x00000007U) << kernels->name;
    EXPECT_EQ(bfloat, 0x0007) << kernels->name;
    EXPECT_EQ(half, 0x0007) << kernels->name;
  }
}

}  // namespace
}  // namespace bs::reduce
