#include "capi/completions.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace bs::capi {
namespace {

using std::chrono::milliseconds;

std::vector<uint64_t> Waited(bs_completions* completions, int timeout_ms, size_t most = 8) {
  std::vector<uint64_t> tokens(most);
  tokens.resize(bs_completions_wait(completions, timeout_ms, tokens.data(), most));
  return tokens;
}

TEST(Completions, GiveTheTokensOfWaitersInTheOrderOfTheirEnds) {
  bs_completions* const completions = bs_completions_new();
  bs_waiter* const first = bs_waiter_new(2);
  bs_waiter* const second = bs_waiter_new(1);
  bs_waiter_report(first, completions, 1);
  bs_waiter_report(second, completions, 2);
  EXPECT_TRUE(Waited(completions, 0).empty());
  bs_waiter_done(first, 0, "");
  EXPECT_TRUE(Waited(completions, 0).empty()) << "one of its completions is missing";
  bs_waiter_done(second, 1, "why");
  bs_waiter_done(first, 0, "");
  EXPECT_EQ(Waited(completions, 1000, 1), std::vector<uint64_t>{2});
  EXPECT_EQ(Waited(completions, 1000), std::vector<uint64_t>{1});
  bs_waiter_free(first);
  bs_waiter_free(second);
  bs_completions_free(completions);
}

TEST(Completions, AWaiterCanBeTakenBack) {
  bs_completions* const completions = bs_completions_new();
  bs_waiter* const waiter = bs_waiter_new(1);
  bs_waiter_report(waiter, completions, 1);
  bs_waiter_report(waiter, nullptr, 0);
  bs_waiter_done(waiter, 0, "");
  EXPECT_TRUE(Waited(completions, 0).empty());
  bs_waiter_free(waiter);
  bs_completions_free(completions);
}

TEST(Completions, OutliveThemselvesWhileAWaiterReports) {
  bs_completions* const completions = bs_completions_new();
  bs_waiter* const waiter = bs_waiter_new(1);
  bs_waiter_report(waiter, completions, 1);
  bs_completions_free(completions);
  bs_waiter_done(waiter, 0, "");
  bs_waiter_free(waiter);
}

TEST(CompletionQueue, AWakeEndsOneWait) {
  CompletionQueue queue;
  std::vector<uint64_t> tokens(2);
  queue.Wake();
  EXPECT_EQ(queue.Wait(std::chrono::hours(1), tokens), 0U);
  EXPECT_EQ(queue.Wait(milliseconds(1), tokens), 0U);
  for (const uint64_t token : {4, 5, 6}) queue.Add(token);
  EXPECT_EQ(queue.Wait(std::chrono::hours(1), tokens), 2U);
  EXPECT_EQ(queue.Wait(std::chrono::hours(1), tokens), 1U);
  EXPECT_EQ(tokens[0], 6U);
}

}  // namespace
}  // namespace bs::capi
