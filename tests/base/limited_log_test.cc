#include "base/limited_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "sim/sim_executor.h"

namespace bs {
namespace {

TEST(LimitedLogTest, WritesALineInAWhileAndCountsTheLinesBetween) {
  sim::SimClock clock{1};
  sim::SimExecutor executor{&clock};
  std::vector<std::string> lines;
  const Logger logger("", LogLevel::kWarning, [&](LogLevel, std::string_view line) {
    lines.emplace_back(line.substr(line.find("WARNING")));
  });
  LimitedLog log(&executor, logger, std::chrono::minutes(1));
  const auto wait = [&](Duration time) { clock.RunUntil(clock.Now() + time); };
  log.Warning("a");
  wait(std::chrono::seconds(59));
  log.Warning("b");
  log.Warning("c");
  wait(std::chrono::seconds(1));
  log.Warning("d");
  wait(std::chrono::minutes(2));
  log.Warning("e");
  EXPECT_THAT(lines,
              testing::ElementsAre("WARNING a", "WARNING d (and 2 lines before it)", "WARNING e"));
}

TEST(LimitedLogTest, LimitsToALineASecondWhereNothingElseIsSaid) {
  sim::SimClock clock{1};
  sim::SimExecutor executor{&clock};
  int lines = 0;
  LimitedLog log(&executor,
                 Logger("", LogLevel::kWarning, [&](LogLevel, std::string_view) { ++lines; }));
  for (int i = 0; i < 40; ++i) {
    log.Warning("again");
    clock.RunUntil(clock.Now() + std::chrono::milliseconds(100));
  }
  EXPECT_EQ(lines, 4);
}

}  // namespace
}  // namespace bs
