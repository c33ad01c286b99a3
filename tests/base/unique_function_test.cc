// UniqueFunction: owns what it captures, moves, and dies once.
#include "base/unique_function.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace bs {
namespace {

int Twice(int x) { return 2 * x; }

TEST(UniqueFunction, CallsTheFunctionThatItOwns) {
  auto owned = std::make_unique<int>(40);
  UniqueFunction<int(int)> add = [owned = std::move(owned)](int x) { return *owned + x; };
  EXPECT_TRUE(static_cast<bool>(add));
  EXPECT_EQ(add(2), 42);
  EXPECT_EQ(add(3), 43);
}

TEST(UniqueFunction, KeepsStateBetweenCalls) {
  UniqueFunction<int()> count = [n = 0]() mutable { return ++n; };
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(count(), 2);
}

TEST(UniqueFunction, TakesFunctionsAndMoveOnlyArguments) {
  const UniqueFunction<int(int)> twice = Twice;
  EXPECT_EQ(twice(4), 8);
  const UniqueFunction<int(std::unique_ptr<int>)> take = [](std::unique_ptr<int> p) { return *p; };
  EXPECT_EQ(take(std::make_unique<int>(9)), 9);
}

TEST(UniqueFunction, MovingEmptiesTheSourceAndCapturesDieOnce) {
  const auto held = std::make_shared<int>(0);
  UniqueFunction<void()> first = [held] { ++*held; };
  UniqueFunction<void()> second = std::move(first);
  EXPECT_FALSE(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move): the moved-from state
  EXPECT_EQ(held.use_count(), 2);
  second();
  second = {};
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 1);
}

TEST(UniqueFunctionDeathTest, CallingAnEmptyOneIsAMistake) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const UniqueFunction<void()> empty;
  EXPECT_DEATH(empty(), "check failed");
}

}  // namespace
}  // namespace bs
