// How the critical tensor is found, and how long a step waits for it.
#include "trace/critical_tensor.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace bs::trace {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint() + milliseconds(1000 + ms); }

// A step of keys 3, 2, 1, ready a millisecond apart, whose sums come from `sums_ms` on, in the
// order of urgency.  What is told, by key.
std::vector<std::pair<Key, Duration>> Step(CriticalTensor* critical, int begin_ms, int sums_ms) {
  for (const int key : {3, 2, 1}) {
    critical->Ready(static_cast<Key>(key), -key, At(begin_ms + 3 - key));
  }
  std::vector<std::pair<Key, Duration>> told;
  for (const int key : {1, 2, 3}) {
    const TimePoint now = At(begin_ms + sums_ms + key);
    const auto since = critical->Summed(static_cast<Key>(key), now);
    if (since) told.emplace_back(key, now - *since);
  }
  return told;
}

using Told = std::vector<std::pair<Key, Duration>>;

TEST(CriticalTensor, IsTheMostUrgentTensorFromTheSecondStepOn) {
  CriticalTensor critical;
  EXPECT_EQ(Step(&critical, 0, 10), Told{});
  EXPECT_EQ(Step(&critical, 100, 10), (Told{{1, milliseconds(9)}}));
  EXPECT_EQ(Step(&critical, 200, 50), (Told{{1, milliseconds(49)}}));
}

TEST(CriticalTensor, NothingIsLostWhereItsSumIsThereBeforeTheLastGradient) {
  CriticalTensor critical;
  Step(&critical, 0, 10);
  Step(&critical, 100, 10);
  critical.Ready(1, -1, At(200));
  critical.Ready(2, -2, At(205));
  EXPECT_EQ(critical.Summed(1, At(204)), At(204));  // read before the clock of the gradient
}

TEST(CriticalTensor, AnotherTensorBecomesItWhenItIsMoreUrgent) {
  CriticalTensor critical;
  Step(&critical, 0, 10);
  Step(&critical, 100, 10);
  critical.Ready(9, 5, At(200));
  EXPECT_EQ(Step(&critical, 201, 10).size(), 1U);  // as learned from the step before
  critical.Ready(9, 5, At(300));
  EXPECT_EQ(critical.Summed(1, At(301)), std::nullopt);
  EXPECT_EQ(critical.Summed(9, At(307)), At(300));
}

TEST(CriticalTensor, BookkeepingIsLeftOut) {
  CriticalTensor critical;
  for (int step = 0; step < 3; ++step) {
    const int begin_ms = 100 * step;
    critical.Ready(1, -1, At(begin_ms));
    for (const Key book : {kFirstBookkeepingKey, kFirstBookkeepingKey + 7}) {
      critical.Ready(book, 100, At(begin_ms + 5));
      EXPECT_EQ(critical.Summed(book, At(begin_ms + 6)), std::nullopt);
    }
    const auto since = critical.Summed(1, At(begin_ms + 20));
    EXPECT_EQ(since.has_value(), step > 0) << "step " << step;
    EXPECT_EQ(since.value_or(At(begin_ms)), At(begin_ms));
  }
}

TEST(CriticalTensor, TheLargestKeyOfATensorMayBeIt) {
  CriticalTensor critical;
  for (int step = 0; step < 2; ++step) critical.Ready(kFirstBookkeepingKey - 1, -1, At(step));
  EXPECT_EQ(critical.Summed(kFirstBookkeepingKey - 1, At(9)), At(1));
}

TEST(CriticalTensor, OneThatIsInUseNoMoreIsReplaced) {
  CriticalTensor critical;
  Step(&critical, 0, 10);
  Step(&critical, 100, 10);  // key 1 of three is critical
  // From now on another model: keys 4 and 5.
  int criticals = 0;
  const int steps = 2 * CriticalTensor::kFrozen;
  for (int step = 0; step < steps; ++step) {
    for (const Key key : {5U, 4U}) critical.Ready(key, -static_cast<Priority>(key), At(200 + step));
    if (const auto since = critical.Summed(4, At(203 + step))) {
      EXPECT_EQ(*since, At(200 + step));
      ++criticals;
    }
    EXPECT_EQ(critical.Summed(5, At(204 + step)), std::nullopt);
  }
  EXPECT_GT(criticals, 1);
  EXPECT_LT(criticals, steps);
}

}  // namespace
}  // namespace bs::trace
