// The file: its name, its end, and what becomes of it when the disk is full or another has it.
#include "trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"

namespace bs::trace {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// In a job of two workers and one server.
job::SharedView OfWorker(int32_t rank) { return job::ShareView({.rank = rank}, 2, 1); }
job::SharedView OfServer(int32_t rank) {
  return job::ShareView({.role = job::Role::kServer, .rank = rank}, 2, 1);
}

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/timeline-" + std::to_string(getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Config With(const std::string& timeline) const {
    Config config;
    config.timeline = timeline.empty() ? "" : folder_ + "/" + timeline;
    return config;
  }
  std::string Read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  // Warnings and worse go to warnings_.
  Logger Log() {
    return Logger("worker 1", LogLevel::kWarning, [this](LogLevel, std::string_view line) {
      const MutexLock lock(&mutex_);
      warnings_.emplace_back(line);
      warned_.Notify();
    });
  }
  // Calls `then` on bs-trace when the file has been opened.
  static Logger WhenOpen(std::function<void()> then) {
    return Logger("worker 1", LogLevel::kInfo,
                  [then = std::move(then)](LogLevel, std::string_view line) {
                    if (line.find("writing a timeline to") != std::string_view::npos) then();
                  });
  }

  std::string folder_;
  Mutex mutex_;
  std::vector<std::string> warnings_;
  Notification warned_;
};

TraceEvent Push(uint64_t key) { return {.kind = TraceEvent::Kind::kPush, .key = key}; }

TEST_F(TimelineTest, KeysHaveTheirNames) {
  {
    const auto timeline = Timeline::OfWorker(With("t.json"), OfWorker(1), Log());
    timeline->Name(7, "fc1_weight");
    // Events of the same moment may have been written before.
    for (int i = 0; i < 1000 && Read("t-r1.json").find("fc1_weight") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a file sends no notification
    }
    timeline->trace()->Record(Push(7));
    timeline->trace()->Record(Push(8));
  }
  EXPECT_THAT(Read("t-r1.json"), AllOf(HasSubstr(R"("name":"fc1_weight part 0","cat":"push")"),
                                       HasSubstr(R"("name":"key 8 part 0","cat":"push")")));
}

TEST_F(TimelineTest, TheFrameworkIsTold) {
  Timeline::OfWorker(With("t.json"), OfWorker(1), Log())->Framework("torch");
  EXPECT_THAT(Read("t-r1.json"), HasSubstr(R"("args":{"framework":"torch"})"));
}

TEST_F(TimelineTest, TheRankStandsBeforeTheExtension) {
  const auto path = [](const std::string& setting, int32_t rank) {
    return TimelinePath(setting, {.view = OfWorker(rank)});
  };
  EXPECT_EQ(path("timeline.json", 0), "timeline-r0.json");
  EXPECT_EQ(path("a.b/c.d.json", 12), "a.b/c.d-r12.json");
  EXPECT_EQ(path("a.b/timeline", 3), "a.b/timeline-r3");
  EXPECT_EQ(path("/tmp/.hidden", 3), "/tmp/.hidden-r3");
  EXPECT_EQ(TimelinePath("t.json", {.view = OfServer(3)}), "t-s3.json");
}

TEST_F(TimelineTest, NothingIsWrittenUnlessItIsWanted) {
  EXPECT_TRUE(CheckTimeline(With("")).ok());
  EXPECT_EQ(Timeline::OfWorker(With(""), OfWorker(0), Log()), nullptr);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(TimelineTest, RecordedEventsAreInAWholeFile) {
  const Config config = With("t.json");
  ASSERT_TRUE(CheckTimeline(config).ok());
  std::unique_ptr<Timeline> timeline = Timeline::OfWorker(config, OfWorker(1), Log());
  ASSERT_NE(timeline, nullptr);
  timeline->trace()->Record(Push(7));
  timeline.reset();
  const std::string text = Read("t-r1.json");
  EXPECT_THAT(text, AllOf(StartsWith("[\n{\"name\":\"bytescheduler\","), HasSubstr("\"rank\":1,"),
                          HasSubstr("\"num_workers\":2,\"num_servers\":1,"),
                          HasSubstr("\"name\":\"key 7 part 0\""), EndsWith("\"lost\":0}}\n]\n")));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(TimelineTest, BeginningDoesNotWaitForTheFile) {
  Notification recorded;
  bool in_time = false;
  const Logger log = WhenOpen([&] { in_time = recorded.WaitFor(std::chrono::seconds(60)); });
  std::unique_ptr<Timeline> timeline = Timeline::OfWorker(With("t.json"), OfWorker(0), log);
  timeline->trace()->Record(Push(7));
  recorded.Notify();
  timeline.reset();
  EXPECT_TRUE(in_time);
  EXPECT_THAT(Read("t-r0.json"), HasSubstr("\"name\":\"key 7 part 0\""));
}

TEST_F(TimelineTest, AServerHasATraceForEachShardAndItsFront) {
  std::unique_ptr<Timeline> timeline = Timeline::OfServer(With("t.json"), OfServer(1), 2, Log());
  ASSERT_NE(timeline, nullptr);
  for (uint32_t shard = 0; shard < 3; ++shard) {
    timeline->trace(shard)->Record({.kind = TraceEvent::Kind::kSum, .server = shard, .key = shard});
  }
  timeline.reset();
  EXPECT_THAT(Read("t-s1.json"),
              AllOf(HasSubstr("\"role\":\"server\",\"rank\":1,"), HasSubstr("\"shard 0 sum 1\""),
                    HasSubstr("\"shard 1 sum 1\""), HasSubstr("\"dispatcher sum 1\"")));
}

TEST_F(TimelineTest, ABusyShardDoesNotKeepOtherShardsWaiting) {
  Notification recorded;
  const TraceOwner owner = {.view = OfServer(0), .num_shards = 1};
  auto timeline = std::make_unique<Timeline>(
      folder_ + "/t.json", owner, 16,
      WhenOpen([&] { EXPECT_TRUE(recorded.WaitFor(std::chrono::seconds(60))); }));
  for (uint64_t key = 0; key < 16; ++key) timeline->trace(0)->Record(Push(key));
  timeline->trace(1)->Record(Push(100));
  recorded.Notify();
  timeline.reset();
  const std::string text = Read("t.json");
  EXPECT_LT(text.find("key 100 "), text.find("key 4 "));
  EXPECT_LT(text.find("key 3 "), text.find("key 100 "));
  EXPECT_NE(text.find("key 15 "), std::string::npos);
}

TEST_F(TimelineTest, AnOlderFileIsReplaced) {
  std::ofstream(folder_ + "/t-r0.json") << std::string(100000, 'x');
  Timeline::OfWorker(With("t.json"), OfWorker(0), Log()).reset();
  EXPECT_THAT(Read("t-r0.json"), AllOf(StartsWith("[\n{"), EndsWith("}\n]\n")));
}

TEST_F(TimelineTest, MoreThanABatchIsWrittenInOrder) {
  constexpr uint64_t kEvents = 5000;  // some MiB of text
  std::unique_ptr<Timeline> timeline = Timeline::OfWorker(With("t.json"), OfWorker(0), Log());
  for (uint64_t key = 0; key < kEvents; ++key) timeline->trace()->Record(Push(key));
  timeline.reset();
  std::stringstream lines(Read("t-r0.json"));
  uint64_t next = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"ph\":\"X\"") == std::string::npos) continue;
    EXPECT_THAT(line, HasSubstr("\"key\":" + std::to_string(next) + ","));
    ++next;
  }
  EXPECT_EQ(next, kEvents);
}

TEST_F(TimelineTest, PlacesWhereNoFileCanBeAreRefusedNamingTheSetting) {
  std::ofstream(folder_ + "/file") << "x";
  const std::string setting = "BYTESCHEDULER_TIMELINE=" + folder_ + "/";
  EXPECT_EQ(CheckTimeline(With("no/t.json")).message(),
            setting + "no/t.json: its directory: No such file or directory");
  EXPECT_EQ(CheckTimeline(With("file/t.json")).message(),
            setting + "file/t.json: its directory: Not a directory");
  EXPECT_EQ(CheckTimeline(With("no/")).message(),
            setting + "no/: want a file, such as timeline.json, not a directory");
  Config folder = With("");
  folder.timeline = folder_;
  EXPECT_EQ(CheckTimeline(folder).code(), StatusCode::kInvalidArgument);
  folder.timeline = "timeline.json";  // here
  EXPECT_TRUE(CheckTimeline(folder).ok());
}

TEST_F(TimelineTest, AFileThatCannotBeOpenedIsAWarning) {
  std::filesystem::create_directory(folder_ + "/t-r0.json");
  std::unique_ptr<Timeline> timeline = Timeline::OfWorker(With("t.json"), OfWorker(0), Log());
  // Nor does it matter how much would be recorded.
  for (uint64_t key = 0; key < 100000; ++key) timeline->trace()->Record(Push(key));
  timeline.reset();
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("t-r0.json: Is a directory; training goes on"));
}

TEST_F(TimelineTest, TwoDoNotWriteToOneFile) {
  Notification open;
  const std::unique_ptr<Timeline> first =
      Timeline::OfWorker(With("t.json"), OfWorker(0), WhenOpen([&open] { open.Notify(); }));
  ASSERT_TRUE(open.WaitFor(std::chrono::seconds(60)));
  Timeline::OfWorker(With("t.json"), OfWorker(0), Log()).reset();
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("t-r0.json: another process writes to it"));
}

TEST_F(TimelineTest, AChildThatLivesOnLeavesTheFileToTheNextWorker) {
  Notification open;
  std::unique_ptr<Timeline> first =
      Timeline::OfWorker(With("t.json"), OfWorker(0), WhenOpen([&open] { open.Notify(); }));
  ASSERT_TRUE(open.WaitFor(std::chrono::seconds(60)));
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);  // should this process not come to end it
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  first.reset();
  Timeline::OfWorker(With("t.json"), OfWorker(0), Log()).reset();
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(TimelineTest, AFullDiskIsOneWarningAndTheRestIsCounted) {
  auto timeline = std::make_unique<Timeline>("/dev/full", TraceOwner{}, 16, Log());
  ASSERT_TRUE(warned_.WaitFor(std::chrono::seconds(60)));  // its head was not written
  for (uint64_t key = 0; key < 10; ++key) timeline->trace()->Record(Push(key));
  timeline.reset();
  ASSERT_EQ(warnings_.size(), 2U);
  EXPECT_THAT(warnings_[0], HasSubstr("/dev/full: No space left on device; training goes on"));
  EXPECT_THAT(warnings_[1], HasSubstr("/dev/full lacks 10 events"));
}

// A process of its own may write no file larger than 100,000 bytes.
void WriteUntilTheLimit(const Config& config) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 100000;
  setrlimit(RLIMIT_FSIZE, &limit);
  std::unique_ptr<Timeline> timeline =
      Timeline::OfWorker(config, OfWorker(0), Logger("worker 0", LogLevel::kWarning));
  for (uint64_t key = 0; key < 10000; ++key) timeline->trace()->Record(Push(key));
  timeline.reset();
  _exit(0);
}

TEST_F(TimelineTest, AFileThatMayNotGrowEndsWithAWholeLine) {
  EXPECT_EXIT(WriteUntilTheLimit(With("t.json")), testing::ExitedWithCode(0),
              "t-r0.json: File too large; training goes on");
  EXPECT_THAT(Read("t-r0.json"), AllOf(StartsWith("[\n{"), EndsWith("},\n")));
}

TEST_F(TimelineTest, EventsLostToASlowFileAreCounted) {
  auto timeline = std::make_unique<Timeline>(folder_ + "/t.json", TraceOwner{}, 4, Log());
  uint64_t key = 0;
  while (timeline->trace()->lost() < 5) timeline->trace()->Record(Push(++key));
  const uint64_t lost = timeline->trace()->lost();
  timeline.reset();
  EXPECT_THAT(Read("t.json"), EndsWith("\"lost\":" + std::to_string(lost) + "}}\n]\n"));
  EXPECT_THAT(warnings_.front(), HasSubstr("t.json is not written fast enough"));
  EXPECT_THAT(warnings_.back(), HasSubstr("t.json lacks " + std::to_string(lost) + " events"));
}

}  // namespace
}  // namespace bs::trace
