// Calls end once: by their end, at their deadline, or all together.
#include "backend/kvstore/open_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "sim/sim_executor.h"

namespace bs::backend {
namespace {

using std::chrono::seconds;

class OpenCallsTest : public testing::Test {
 protected:
  void RunFor(Duration time) { clock_.RunUntil(clock_.Now() + time); }
  OpenCalls::Id Add(Key key) {
    return calls_.Add({.verb = "pull", .key = key, .place = CallName::Place{12, 2, 1}},
                      [this, key](const Status& status) {
                        ended_.push_back(std::to_string(key) + ": " + status.ToString());
                      });
  }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  std::vector<std::string> lines_;
  std::vector<std::string> ended_;
  OpenCalls calls_{&executor_, seconds(60), "the others",
                   Logger("", LogLevel::kDebug,
                          [this](LogLevel, std::string_view line) { lines_.emplace_back(line); })};
};

TEST(CallName, SaysAllThatIsKnown) {
  EXPECT_EQ(Describe({.verb = "lookup", .key = 7}), "lookup key=7");
  EXPECT_EQ(Describe({.verb = "push", .key = 7, .place = CallName::Place{12, 2, 1}}),
            "push key=7 round=12 partition=2 to server 1");
}

TEST_F(OpenCallsTest, ACallEndsOnceAndNotInsideTheCallThatEndsIt) {
  const OpenCalls::Id call = Add(7);
  EXPECT_TRUE(calls_.IsOpen(call));
  calls_.End(call, Status::Ok());
  EXPECT_FALSE(calls_.IsOpen(call));
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(calls_.pending(), 1U);
  calls_.End(call, Status::Internal("late"));
  RunFor(seconds(100));
  EXPECT_EQ(ended_, std::vector<std::string>{"7: ok"});
  EXPECT_EQ(calls_.pending(), 0U);
}

TEST_F(OpenCallsTest, EachHasItsOwnDeadline) {
  Add(1);
  RunFor(seconds(7));
  const OpenCalls::Id second = Add(2);
  RunFor(seconds(1));
  Add(3);
  RunFor(seconds(50));
  calls_.End(second, Status::Ok());
  RunFor(seconds(1));
  ASSERT_EQ(ended_.size(), 1U) << "the first has a second left";
  RunFor(seconds(1));
  ASSERT_EQ(ended_.size(), 2U);
  EXPECT_NE(ended_[1].find("pull key=1 round=12 partition=2 to server 1: after 60 s still waiting "
                           "for the others"),
            std::string::npos)
      << ended_[1];
  RunFor(seconds(7));
  EXPECT_EQ(ended_.size(), 2U);
  RunFor(seconds(1));
  EXPECT_EQ(ended_.size(), 3U);
}

TEST_F(OpenCallsTest, ADebugLineNamesTheOldestFromTimeToTime) {
  Add(1);
  Add(2);
  RunFor(seconds(11));
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_NE(lines_[1].find("pull key=1 round=12 partition=2 to server 1: after 10 s still"),
            std::string::npos)
      << lines_[1];
  calls_.FailAll(Status::Cancelled("over"));
  RunFor(seconds(60));
  EXPECT_EQ(lines_.size(), 2U);
}

TEST_F(OpenCallsTest, AFailureEndsOpenCallsAndLaterCalls) {
  Add(1);
  calls_.FailAll(Status::Cancelled("over"));
  calls_.FailAll(Status::Internal("again"));
  EXPECT_FALSE(calls_.IsOpen(Add(2)));
  EXPECT_EQ(calls_.failure().message(), "over");
  RunFor(seconds(1));
  ASSERT_EQ(ended_.size(), 2U);
  EXPECT_NE(ended_[0].find("over"), std::string::npos);
  EXPECT_NE(ended_[1].find("over"), std::string::npos);
}

}  // namespace
}  // namespace bs::backend
