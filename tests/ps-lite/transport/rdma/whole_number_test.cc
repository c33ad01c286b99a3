#include "transport/rdma/whole_number.h"

#include <gtest/gtest.h>

namespace ps {
namespace {

TEST(WholeNumber, ReadsTextsThatAreOneDecimalNumber) {
  EXPECT_EQ(WholeNumber("0"), 0);
  EXPECT_EQ(WholeNumber("17"), 17);
  EXPECT_EQ(WholeNumber("-1"), -1);
  EXPECT_EQ(WholeNumber("2147483647"), 2147483647);
}

TEST(WholeNumber, TakesNoOtherText) {
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x1", "1.0", "2147483648", "one"}) {
    EXPECT_EQ(WholeNumber(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ps
