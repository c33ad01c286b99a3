// Element types: MXNet's codes, sizes and names.
#include "base/types.h"

#include <gtest/gtest.h>

namespace bs {
namespace {

TEST(Types, CodesOfMxnetAreKnownWithSizeAndName) {
  struct Row {
    uint32_t code;
    size_t size_bytes;
    std::string_view name;
  };
  const Row rows[] = {{0, 4, "float32"}, {1, 8, "float64"}, {2, 2, "float16"}, {3, 1, "uint8"},
                      {4, 4, "int32"},   {5, 1, "int8"},    {6, 8, "int64"},   {12, 2, "bfloat16"}};
  for (const Row& row : rows) {
    const std::optional<DType> dtype = DTypeFromCode(row.code);
    ASSERT_TRUE(dtype.has_value()) << row.code;
    EXPECT_EQ(static_cast<uint32_t>(*dtype), row.code);
    EXPECT_EQ(SizeOf(*dtype), row.size_bytes);
    EXPECT_EQ(NameOf(*dtype), row.name);
  }
}

TEST(Types, OtherCodesAreNothing) {
  for (const uint32_t code : {7U, 8U, 11U, 13U, 256U, 0xffffffffU}) {
    EXPECT_FALSE(DTypeFromCode(code).has_value()) << code;
  }
}

TEST(Types, ReductionsHaveTheNumbersOfTheProtocol) {
  const std::string_view names[] = {"sum", "min", "max", "product"};
  for (uint32_t code = 0; code < 4; ++code) {
    const std::optional<Reduction> reduction = ReductionFromCode(code);
    ASSERT_TRUE(reduction.has_value());
    EXPECT_EQ(static_cast<uint32_t>(*reduction), code);
    EXPECT_EQ(NameOf(*reduction), names[code]);
  }
  EXPECT_FALSE(ReductionFromCode(4).has_value());
}

}  // namespace
}  // namespace bs
