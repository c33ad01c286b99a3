#include "server/forgotten_keys.h"

#include <gtest/gtest.h>

namespace bs::server {
namespace {

TEST(ForgottenKeys, EarlierLayoutsOfAKeyAreOver) {
  ForgottenKeys forgotten;
  EXPECT_FALSE(forgotten.IsOver(7, 0));
  forgotten.Add(7, 3);
  forgotten.Add(7, 2);
  EXPECT_TRUE(forgotten.IsOver(7, 2));
  EXPECT_FALSE(forgotten.IsOver(7, 3));
  EXPECT_FALSE(forgotten.IsOver(8, 0));
}

TEST(ForgottenKeys, KeepsTheLatestKeys) {
  ForgottenKeys forgotten;
  for (Key key = 0; key <= ForgottenKeys::kMost; ++key) forgotten.Add(key, 1);
  EXPECT_FALSE(forgotten.IsOver(0, 0));
  EXPECT_TRUE(forgotten.IsOver(1, 0));
  EXPECT_TRUE(forgotten.IsOver(ForgottenKeys::kMost, 0));
}

TEST(ForgottenKeys, KeyThatIsAddedAgainIsTheLatest) {
  ForgottenKeys forgotten;
  for (Key key = 0; key < ForgottenKeys::kMost; ++key) forgotten.Add(key, 1);
  forgotten.Add(0, 1);
  forgotten.Add(ForgottenKeys::kMost, 1);
  EXPECT_TRUE(forgotten.IsOver(0, 0));
  EXPECT_FALSE(forgotten.IsOver(1, 0));
}

TEST(ForgottenKeys, KeyThatIsAddedManyTimesStays) {
  ForgottenKeys forgotten;
  for (size_t times = 0; times < 3 * ForgottenKeys::kMost; ++times) forgotten.Add(7, 1);
  EXPECT_TRUE(forgotten.IsOver(7, 0));
}

}  // namespace
}  // namespace bs::server
