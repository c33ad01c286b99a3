// The file of all lines, also where there is no room for it.
#include "node/debug_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace bs::node {
namespace {

class DebugLogTest : public ::testing::Test {
 protected:
  DebugLogTest()
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("debug-" + std::to_string(getpid()) + ".log")) {
    std::filesystem::remove(path_);
  }
  ~DebugLogTest() override { std::filesystem::remove(path_); }

  std::string Written() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static size_t Lines(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  const std::filesystem::path path_;
};

TEST_F(DebugLogTest, HasAllLinesAndStderrOnlyTheLinesOfItsLevel) {
  testing::internal::CaptureStderr();
  {
    const Logger log =
        LoggerInto(std::make_shared<DebugLog>(path_, "worker"), "worker", LogLevel::kWarning);
    log.Debug("small");
    log.Named("worker 3").Warning("large");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(Lines(said), 1U);
  EXPECT_NE(said.find(" WARNING worker 3: large\n"), std::string::npos) << said;
  EXPECT_EQ(Lines(Written()), 2U);
  EXPECT_NE(Written().find(" DEBUG worker: small\n"), std::string::npos) << Written();
  EXPECT_NE(Written().find(" WARNING worker 3: large\n"), std::string::npos) << Written();
}

TEST_F(DebugLogTest, SeveralAppendToOneFile) {
  DebugLog first(path_, "worker");
  DebugLog second(path_, "server");
  first.Append("one");
  second.Append("two");
  first.Append("three");
  EXPECT_EQ(Written(), "one\ntwo\nthree\n");
}

TEST_F(DebugLogTest, AFullDiskIsOneWarning) {
  testing::internal::CaptureStderr();
  {
    DebugLog full("/dev/full", "server");
    for (int i = 0; i < 3; ++i) full.Append("line");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(Lines(said), 1U) << said;
  EXPECT_NE(
      said.find("WARNING server: BYTESCHEDULER_DEBUG: /dev/full: No space left on device; the "
                "job goes on, nothing more is written to it"),
      std::string::npos)
      << said;
}

TEST_F(DebugLogTest, AFileThatCannotBeOpenedIsOneWarning) {
  testing::internal::CaptureStderr();
  {
    DebugLog none("/nosuch/b.log", "worker");
    none.Append("line");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(Lines(said), 1U) << said;
  EXPECT_NE(said.find("/nosuch/b.log: No such file or directory"), std::string::npos) << said;
}

TEST_F(DebugLogTest, WithoutTheSettingThereIsNone) { EXPECT_EQ(DebugLog::Open(Config()), nullptr); }

}  // namespace
}  // namespace bs::node
