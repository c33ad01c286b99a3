#include "server/mxnet_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

class MxnetProtocolTest : public testing::Test {
 protected:
  void RunAll() { clock_.RunUntil(clock_.Now() + std::chrono::seconds(1)); }
  static ps::Message Command(int32_t head, std::string body = "") {
    ps::Message message;
    message.peer = ps::WorkerId(1);
    message.meta.head = head;
    message.meta.body = std::move(body);
    message.meta.request = true;
    message.meta.simple_app = true;
    message.meta.app_id = 0;
    message.meta.customer_id = 2;
    message.meta.timestamp = 4;
    return message;
  }
  static ps::Message Data(uint64_t key) {
    ps::Message message = Command(0);
    message.meta.simple_app = false;
    message.meta.push = true;
    message.data.push_back(
        ps::Frame::Copy({reinterpret_cast<const std::byte*>(&key), sizeof(key)}));
    return message;
  }
  Server::Handler Handler() {
    return {[this] { ++stops_; }, [this](Status why) { failures_.push_back(std::move(why)); }};
  }

  sim::SimClock clock_{1};
  sim::SimExecutor front_{&clock_};
  Outbox outbox_;
  int stops_ = 0;
  std::vector<Status> failures_;
  std::vector<std::string> lines_;
  Logger log_{"server 0", LogLevel::kInfo,
              [this](LogLevel, std::string_view line) { lines_.emplace_back(line); }};
  MxnetProtocol protocol_{0, &front_, outbox_.sender(), Handler(), log_};
};

TEST_F(MxnetProtocolTest, EveryCommandIsAnsweredInKindAndEmpty) {
  for (const int32_t head : {0, 1, 2, 3, 4, 5, 77, -1}) {
    protocol_.OnMessage(Command(head, "body"));
    const ps::Message answer = outbox_.Next();
    EXPECT_EQ(answer.peer, ps::WorkerId(1));
    EXPECT_EQ(answer.meta.head, head);
    EXPECT_EQ(answer.meta.body, "");
    EXPECT_TRUE(answer.meta.simple_app);
    EXPECT_FALSE(answer.meta.request);
    EXPECT_EQ(answer.meta.customer_id, 2);
    EXPECT_EQ(answer.meta.timestamp, 4);
    EXPECT_FALSE(answer.meta.native());
  }
}

TEST_F(MxnetProtocolTest, StopIsAnsweredFirstAndToldOnceNeverInsideTheCall) {
  protocol_.OnMessage(Command(2));
  EXPECT_EQ(outbox_.size(), 1u);
  EXPECT_EQ(stops_, 0);
  RunAll();
  EXPECT_EQ(stops_, 1);
  protocol_.OnMessage(Command(2));
  RunAll();
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(outbox_.size(), 2u);
}

TEST_F(MxnetProtocolTest, AnOptimizerIsIgnoredWithOneLogLine) {
  protocol_.OnMessage(Command(0, "cos\nsystem\n(S'echo'\ntR."));
  protocol_.OnMessage(Command(0, "cos\nsystem\n(S'echo'\ntR."));
  EXPECT_EQ(outbox_.size(), 2u);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], testing::HasSubstr("optimizer that worker 1 sent is ignored"));
}

TEST_F(MxnetProtocolTest, DataEndsTheJobOnceWithASentenceThatHelps) {
  protocol_.OnMessage(Data(3));
  protocol_.OnMessage(Data(4));
  EXPECT_TRUE(failures_.empty()) << "never inside the call";
  RunAll();
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(failures_[0].message(),
            "worker 1 sends key 3 through the stock store, which these servers do not serve: wrap "
            "the store, kvs = ScheduledKVS(kvs)");
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(MxnetProtocolTest, DataWithoutAKeyIsNoReasonToCrash) {
  ps::Message bare = Data(3);
  bare.data.clear();
  protocol_.OnMessage(bare);
  RunAll();
  EXPECT_THAT(failures_.at(0).message(), testing::HasSubstr("worker 1 sends data through"));
}

TEST_F(MxnetProtocolTest, ResponsesControlAndStrangersAreIgnored) {
  ps::Message response = Command(2);
  response.meta.request = false;
  ps::Message control = Command(2);
  control.meta.is_control = true;
  ps::Message stranger = Data(1);
  stranger.peer = ps::kEmpty;
  for (const ps::Message* message : {&response, &control, &stranger}) {
    protocol_.OnMessage(*message);
  }
  RunAll();
  EXPECT_TRUE(outbox_.empty());
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(stops_, 0);
}

}  // namespace
}  // namespace bs::server
