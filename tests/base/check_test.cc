// BS_CHECK: silent when true, fatal with place and expression when false.
#include "base/check.h"

#include <gtest/gtest.h>

namespace bs {
namespace {

TEST(Check, TrueConditionIsEvaluatedOnceAndSilent) {
  int calls = 0;
  BS_CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

TEST(CheckDeathTest, FalseConditionNamesFileAndExpression) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(BS_CHECK(1 + 1 == 3), "check_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace bs
