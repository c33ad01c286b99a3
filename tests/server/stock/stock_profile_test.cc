#include "server/stock/stock_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "protocol/data_body.h"
#include "server/stock/stock_support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

class StockProfileTest : public testing::Test {
 protected:
  StockProfileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    std::filesystem::current_path(folder_);
  }
  ~StockProfileTest() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  StockProfileTest(const StockProfileTest&) = delete;
  StockProfileTest& operator=(const StockProfileTest&) = delete;

  static std::string Text(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(name).rdbuf();
    return text.str();
  }
  static size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }
  static ps::Message Native(ps::Op op, uint64_t key) {
    ps::Message message;
    message.peer = ps::WorkerId(1);
    message.meta.request = true;
    message.meta.extension.version = 1;
    message.meta.extension.op = op;
    message.meta.extension.body = protocol::Encode(op, {.key = key});
    return message;
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const std::filesystem::path folder_ =
      before_ / testing::UnitTest::GetInstance()->current_test_info()->name();
  sim::SimClock clock_{1};
  sim::SimExecutor dispatcher_{&clock_};
  std::vector<std::string> lines_;
  Logger log_{"server 3", LogLevel::kWarning,
              [this](LogLevel, std::string_view line) { lines_.emplace_back(line); }};
  StockProfile profile_{3, &dispatcher_, log_};
};

TEST_F(StockProfileTest, RequestsWhileItRunsAreInAFileThatBearsTheRank) {
  profile_.Obey("filename:p.json,profile_all:True,0");
  profile_.Note(Native(ps::Op::kPush, 40));
  profile_.Obey("11");
  profile_.Note(Native(ps::Op::kPush, 41));
  clock_.RunUntil(clock_.Now() + std::chrono::microseconds(70));
  profile_.Note(Native(ps::Op::kPull, 42));
  profile_.Note(Native(ps::Op::kPushPull, 43));
  profile_.Note(Native(ps::Op::kDeclare, 44));  // carries no value
  profile_.Note(StockRequest(StockPush(45, Floats({1, 2}))));
  profile_.Obey("01");
  profile_.Note(Native(ps::Op::kPush, 46));
  const std::string text = Text("rank3_p.json");
  EXPECT_EQ(Count(text, R"("ph": "i")"), 4);
  for (const char* part :
       {R"("name": "push", "pid": 0, "tid": 1, )", R"("key": 41, )", R"("name": "pull", )",
        R"("key": 42, )", R"("name": "pushpull", )", R"("key": 43, )", R"("lost": "0")"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(text.substr(text.size() - 3), "}}\n");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(StockProfileTest, APauseLeavesEventsOutAndADumpWritesTheRecordedEvents) {
  profile_.Obey("11");
  profile_.Obey("12");
  profile_.Note(Native(ps::Op::kPush, 1));
  profile_.Obey("02");
  profile_.Note(Native(ps::Op::kPush, 2));
  profile_.Obey("03");
  EXPECT_EQ(Count(Text("rank3_profile.json"), R"("ph": "i")"), 1);
  profile_.Note(Native(ps::Op::kPush, 3));
  profile_.Obey("13");
  EXPECT_EQ(Count(Text("rank3_profile.json"), R"("ph": "i")"), 2);
}

TEST_F(StockProfileTest, RunningAgainBeginsAnew) {
  profile_.Obey("11");
  profile_.Note(Native(ps::Op::kPush, 1));
  profile_.Obey("11");  // runs already
  profile_.Obey("01");
  profile_.Obey("11");
  profile_.Note(Native(ps::Op::kPush, 2));
  profile_.Note(Native(ps::Op::kPush, 3));
  profile_.Obey("01");
  EXPECT_EQ(Count(Text("rank3_profile.json"), R"("ph": "i")"), 2);
}

// Whoever reaches the server names the file, which must be no other of this host.
TEST_F(StockProfileTest, AFileOfAnotherDirectoryIsRefusedWithOneWarning) {
  for (const char* name : {"/tmp/p.json", "../p.json", "a\nb", ""}) {
    profile_.Obey("filename:" + std::string(name) + ",0");
  }
  ASSERT_EQ(lines_.size(), 4);
  EXPECT_THAT(lines_[0], HasSubstr("want a filename without a directory and control characters; "
                                   "this server writes to rank3_profile.json"));
  profile_.Obey("11");
  profile_.Obey("01");
  EXPECT_TRUE(std::filesystem::exists("rank3_profile.json"));
}

TEST_F(StockProfileTest, AFileThatCannotBeWrittenIsOneWarning) {
  std::filesystem::create_directory("rank3_profile.json");
  profile_.Obey("11");
  profile_.Obey("01");
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_THAT(lines_[0], HasSubstr("cannot write rank3_profile.json: "));
}

TEST_F(StockProfileTest, NonsenseIsIgnored) {
  for (const char* command : {"", "1", "x", "filename0", ",,,0", "filename:0", "119", "x1", "2"}) {
    profile_.Obey(command);
  }
  profile_.Note(Native(ps::Op::kPush, 1));
  EXPECT_TRUE(std::filesystem::is_empty("."));
}

TEST_F(StockProfileTest, EventsBeyondTheMostAreCounted) {
  profile_.Obey("11");
  const ps::Message push = Native(ps::Op::kPush, 1);
  for (size_t i = 0; i < StockProfile::kMaxEvents + 5; ++i) profile_.Note(push);
  profile_.Obey("01");
  EXPECT_THAT(Text("rank3_profile.json"), HasSubstr(R"("lost": "5")"));
}

}  // namespace
}  // namespace bs::server
