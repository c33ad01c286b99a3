// The residual of a key.
#include "worker/residual.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace bs::worker {
namespace {

std::vector<float> Copied(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(Residual, BeginsWithZerosAndStaysUntilItIsCleared) {
  Residual residual;
  EXPECT_TRUE(residual.empty());
  EXPECT_TRUE(residual.Of(0).empty());
  EXPECT_EQ(Copied(residual.Of(3)), std::vector<float>(3));
  residual.Of(3)[1] = 5;
  EXPECT_FALSE(residual.empty());
  EXPECT_EQ(Copied(residual.Of(3)), (std::vector<float>{0, 5, 0}));
  residual.Clear();
  EXPECT_TRUE(residual.empty());
  EXPECT_EQ(Copied(residual.Of(3)), std::vector<float>(3));
}

}  // namespace
}  // namespace bs::worker
