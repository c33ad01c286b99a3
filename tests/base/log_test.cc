// Logger: what a line holds, which lines are dropped, and where they go.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace bs {
namespace {

using ::testing::MatchesRegex;

struct Captured {
  std::vector<std::pair<LogLevel, std::string>> lines;
  Logger::Sink sink() {
    return [this](LogLevel level, std::string_view line) { lines.emplace_back(level, line); };
  }
};

TEST(Logger, LineHasTimeLevelNodeAndMessage) {
  Captured captured;
  const Logger log("worker 0", LogLevel::kDebug, captured.sink());
  log.Info("waiting for 1 of 2 workers");
  ASSERT_EQ(captured.lines.size(), 1U);
  EXPECT_EQ(captured.lines[0].first, LogLevel::kInfo);
  EXPECT_THAT(captured.lines[0].second,
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} "
                           "INFO worker 0: waiting for 1 of 2 workers"));
}

TEST(Logger, LinesUnderTheThresholdAreDropped) {
  Captured captured;
  const Logger log("x", LogLevel::kWarning, captured.sink());
  log.Debug("d");
  log.Info("i");
  log.Warning("w");
  log.Error("e");
  ASSERT_EQ(captured.lines.size(), 2U);
  EXPECT_EQ(captured.lines[0].first, LogLevel::kWarning);
  EXPECT_EQ(captured.lines[1].first, LogLevel::kError);
}

TEST(Logger, OffDropsErrorsToo) {
  Captured captured;
  Logger("x", LogLevel::kOff, captured.sink()).Error("e");
  EXPECT_TRUE(captured.lines.empty());
}

TEST(Logger, NamedKeepsThresholdAndSink) {
  Captured captured;
  const Logger log = Logger("x", LogLevel::kError, captured.sink()).Named("server 1");
  log.Warning("w");
  log.Error("e");
  ASSERT_EQ(captured.lines.size(), 1U);
  EXPECT_THAT(captured.lines[0].second, testing::EndsWith("ERROR server 1: e"));
}

TEST(Logger, WritesToStderrWithoutASink) {
  testing::internal::CaptureStderr();
  Logger().Warning("nameless");
  Logger().Info("dropped");
  Logger("scheduler", LogLevel::kInfo).Info("kept");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex(".* WARNING nameless\n.* INFO scheduler: kept\n"));
}

}  // namespace
}  // namespace bs
