// UnknownPeerLog: each host has a line, and none has many.
#include "transport/unknown_peer_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "sim/sim_executor.h"

namespace ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class UnknownPeerLogTest : public ::testing::Test {
 protected:
  std::vector<std::string> Tell(const std::string& address) {
    said_.clear();
    strangers_.Tell("hung up on", address, "it is strange");
    return said_;
  }
  // Returns the lines after the host has come and gone so often.
  std::vector<std::string> Visit(const std::string& address, uint64_t times) {
    said_.clear();
    for (uint64_t i = 0; i < times; ++i) strangers_.CameAndWent(address);
    return said_;
  }
  void Wait(bs::Duration time) { clock_.RunUntil(clock_.Now() + time); }

 private:
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  std::vector<std::string> said_;
  UnknownPeerLog strangers_{&executor_, bs::Logger("", bs::LogLevel::kWarning,
                                                   [this](bs::LogLevel, std::string_view line) {
                                                     said_.emplace_back(line);
                                                   })};
};

TEST_F(UnknownPeerLogTest, AHostIsNamedOnceAMinute) {
  EXPECT_THAT(Tell("10.0.0.1:4711"),
              ElementsAre(::testing::HasSubstr("hung up on 10.0.0.1:4711: it is strange")));
  EXPECT_THAT(Tell("10.0.0.1:4712"), IsEmpty());
  Wait(UnknownPeerLog::kInterval / 2);
  EXPECT_THAT(Tell("10.0.0.1:4713"), IsEmpty());
  EXPECT_THAT(Tell("10.0.0.2:4713"), ElementsAre(::testing::HasSubstr("10.0.0.2:4713")));
  Wait(UnknownPeerLog::kInterval / 2);
  EXPECT_THAT(Tell("10.0.0.1:4714"),
              ElementsAre(::testing::HasSubstr("(and 2 times before it for that host)")));
  EXPECT_THAT(Tell("10.0.0.2:4714"), IsEmpty());
}

TEST_F(UnknownPeerLogTest, ManyHostsAreNotAllRemembered) {
  size_t told = 0;
  for (int i = 0; i < 1000; ++i) {
    told += Tell("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ":1").size();
  }
  EXPECT_EQ(told, UnknownPeerLog::kMostHosts);
  Wait(UnknownPeerLog::kInterval);
  EXPECT_EQ(Tell("10.0.3.249:1").size(), 1U);
}

TEST_F(UnknownPeerLogTest, AHostThatComesAndGoesManyTimesAMinuteIsNamedOnce) {
  constexpr uint64_t kMany = UnknownPeerLog::kManyVisits;
  EXPECT_THAT(Visit("10.0.0.1:4711", kMany - 1), IsEmpty());
  EXPECT_THAT(Visit("10.0.0.2:4711", kMany - 1), IsEmpty());
  EXPECT_THAT(Visit("10.0.0.1:4712", 3 * kMany),
              ElementsAre(::testing::HasSubstr("closed by 10.0.0.1:4712: connection 1000 of that "
                                               "host within a minute, and it is not in the job")));
  Wait(UnknownPeerLog::kInterval);
  EXPECT_THAT(Visit("10.0.0.2:4711", kMany - 1), IsEmpty());
  EXPECT_EQ(Visit("10.0.0.1:4711", kMany).size(), 1U);
}

TEST_F(UnknownPeerLogTest, OfManyHostsThatComeAndGoNotAllAreCounted) {
  for (size_t i = 0; i < UnknownPeerLog::kMostHosts; ++i) Visit("10.0.1." + std::to_string(i), 1);
  EXPECT_THAT(Visit("10.0.0.1:4711", UnknownPeerLog::kManyVisits), IsEmpty());
  Wait(UnknownPeerLog::kInterval);
  EXPECT_EQ(Visit("10.0.0.1:4711", UnknownPeerLog::kManyVisits).size(), 1U);
}

}  // namespace
}  // namespace ps
