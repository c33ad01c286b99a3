// The specification of float16 against the compiler's own _Float16, where it has one.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>

#include "reduce/arrays.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

TEST(Float16Test, SumsEqualTheCompilers) {
  std::mt19937_64 random(754);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (int i = 0; i < 16; ++i) {
      auto a = static_cast<uint16_t>(bits);
      const auto b = static_cast<uint16_t>(RandomElement(DType::kFloat16, random));
      const auto compilers =
          static_cast<_Float16>(std::bit_cast<_Float16>(a) + std::bit_cast<_Float16>(b));
      const uint16_t expected =
          compilers == compilers ? std::bit_cast<uint16_t>(compilers) : uint16_t{0x7e00};
      Sum(ScalarKernels(), DType::kFloat16, &a, &b, 1);
      ASSERT_EQ(a, expected) << bits << " + " << b;
    }
  }
}

}  // namespace
}  // namespace bs::reduce
