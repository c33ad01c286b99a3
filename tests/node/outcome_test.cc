// An outcome is said once and read by anyone.
#include "node/outcome.h"

#include <gtest/gtest.h>

#include "base/loop_thread.h"

namespace bs::node {
namespace {

TEST(Outcome, IsOpenUntilItIsSet) {
  Outcome outcome;
  EXPECT_EQ(outcome.Get(), std::nullopt);
  EXPECT_FALSE(outcome.WaitFor(Duration::zero()));
}

TEST(Outcome, TheFirstToSayItWins) {
  Outcome outcome;
  EXPECT_TRUE(outcome.Set(Status::Unavailable("lost server 0")));
  EXPECT_FALSE(outcome.Set(Status::Ok()));
  ASSERT_TRUE(outcome.Get().has_value());
  EXPECT_EQ(outcome.Get()->message(), "lost server 0");
}

TEST(Outcome, WakesWhoeverWaits) {
  Outcome outcome;
  LoopThread thread("sets");
  thread.Post([&] { outcome.Set(Status::Ok()); });
  EXPECT_TRUE(outcome.WaitFor(std::chrono::seconds(30)));
  EXPECT_TRUE(outcome.Get()->ok());
}

}  // namespace
}  // namespace bs::node
