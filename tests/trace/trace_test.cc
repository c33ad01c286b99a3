// The ring between two threads: order, bounds, what is lost.
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace bs::trace {
namespace {

TraceEvent Numbered(uint64_t number) { return {.key = number, .bytes = 3 * number}; }

TEST(Trace, EventsComeOutAsAndInTheOrderInWhichTheyWereRecorded) {
  Trace trace(8);
  TraceEvent event{.kind = TraceEvent::Kind::kPull,
                   .partition = 2,
                   .server = 3,
                   .priority = -4,
                   .key = 5,
                   .round = 6,
                   .bytes = 7,
                   .begin = TimePoint(Duration(8)),
                   .end = TimePoint(Duration(9))};
  trace.Record(event);
  trace.Record(Numbered(1));
  TraceEvent taken;
  ASSERT_TRUE(trace.Take(&taken));
  EXPECT_EQ(taken.kind, TraceEvent::Kind::kPull);
  EXPECT_EQ(taken.partition, 2U);
  EXPECT_EQ(taken.server, 3U);
  EXPECT_EQ(taken.priority, -4);
  EXPECT_EQ(taken.key, 5U);
  EXPECT_EQ(taken.round, 6U);
  EXPECT_EQ(taken.bytes, 7U);
  EXPECT_EQ(taken.begin, TimePoint(Duration(8)));
  EXPECT_EQ(taken.end, TimePoint(Duration(9)));
  ASSERT_TRUE(trace.Take(&taken));
  EXPECT_EQ(taken.key, 1U);
  EXPECT_FALSE(trace.Take(&taken));
}

TEST(Trace, EventsWithoutRoomAreLostAndCountedAndTheRestStays) {
  Trace trace(4);
  for (uint64_t i = 0; i < 7; ++i) trace.Record(Numbered(i));
  EXPECT_EQ(trace.lost(), 3U);
  TraceEvent taken;
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(trace.Take(&taken));
    EXPECT_EQ(taken.key, i);
  }
  EXPECT_FALSE(trace.Take(&taken));
}

TEST(Trace, RoomThatTheReaderMadeIsUsedAgain) {
  Trace trace(4);
  TraceEvent taken;
  for (uint64_t i = 0; i < 100; ++i) {
    trace.Record(Numbered(i));
    ASSERT_TRUE(trace.Take(&taken));
    EXPECT_EQ(taken.key, i);
  }
  EXPECT_EQ(trace.lost(), 0U);
}

TEST(Trace, TheReaderIsWokenOnceForEachQuarter) {
  int woken = 0;
  Trace trace(16, [&woken] { ++woken; });
  for (uint64_t i = 0; i < 11; ++i) trace.Record(Numbered(i));
  EXPECT_EQ(woken, 2);
  for (uint64_t i = 0; i < 100; ++i) trace.Record(Numbered(i));  // full: nothing new to read
  EXPECT_EQ(woken, 4);
}

TEST(Trace, TwoThreadsLoseNothingThatIsNotCounted) {
  constexpr uint64_t kEvents = 100000;
  Trace trace(64);
  std::atomic<bool> over = false;
  std::thread recorder([&] {
    for (uint64_t i = 1; i <= kEvents; ++i) trace.Record(Numbered(i));
    over = true;
  });
  uint64_t taken = 0;
  uint64_t last = 0;
  TraceEvent event;
  bool more = true;
  while (more) {
    const bool was_over = over;
    more = trace.Take(&event);
    if (more) {
      ++taken;
      EXPECT_GT(event.key, last);
      EXPECT_EQ(event.bytes, 3 * event.key);
      last = event.key;
    } else {
      more = !was_over;
    }
  }
  recorder.join();
  EXPECT_EQ(taken + trace.lost(), kEvents);
}

TEST(TraceDeathTest, CapacityIsAPowerOfTwo) {
  EXPECT_DEATH(Trace(2), "");
  EXPECT_DEATH(Trace(12), "");
}

}  // namespace
}  // namespace bs::trace
