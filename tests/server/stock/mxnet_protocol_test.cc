#include "server/stock/mxnet_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/stock/stock_support.h"
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
  static ps::Message Data() { return StockRequest(StockPush(1, Floats({1}))); }
  static ServerOptions Options() {
    ServerOptions options;
    options.view = job::ShareView({.role = job::Role::kServer}, 2, 1);
    return options;
  }
  StockWays Ways() {
    return {outbox_.sender(), [this](Status why) { failures_.push_back(std::move(why)); }, hosted_,
            MakeBounds(Options())};
  }

  sim::SimClock clock_{1};
  sim::SimExecutor dispatcher_{&clock_};
  sim::SimExecutor shard_{&clock_};
  sim::SimExecutor host_{&clock_};
  std::string loaded_;
  std::shared_ptr<HostedUpdates> hosted_ = std::make_shared<HostedUpdates>(
      ServerUpdater{.executor = &host_,
                    .set_optimizer =
                        [this](std::string_view pickle) {
                          loaded_ = pickle;
                          return Status::Ok();
                        },
                    .update = [](const ServerUpdate&) { return Status::Ok(); }});
  Outbox outbox_;
  int stops_ = 0;
  std::vector<Status> failures_;
  std::vector<std::string> lines_;
  Logger log_{"server 0", LogLevel::kInfo,
              [this](LogLevel, std::string_view line) { lines_.emplace_back(line); }};
  MxnetProtocol protocol_{Options(), &dispatcher_,         {{&shard_, 0}},
                          Ways(),    [this] { ++stops_; }, log_};
};

TEST_F(MxnetProtocolTest, EveryCommandIsAnsweredInKindAndEmpty) {
  for (const int32_t head : {1, 2, 3, 5, 77, -1}) {
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

TEST_F(MxnetProtocolTest, AnOptimizerIsAnsweredWhenItIsLoaded) {
  protocol_.OnMessage(Command(0, "a pickle"));
  EXPECT_TRUE(outbox_.empty());
  RunAll();
  EXPECT_EQ(outbox_.All().size(), 1u);
  EXPECT_EQ(loaded_, "a pickle");
}

TEST_F(MxnetProtocolTest, CommandsHoldForTheRequestsBehindThem) {
  protocol_.OnMessage(Command(3));
  protocol_.OnMessage(Command(4, "1,0.500000"));
  protocol_.OnMessage(Command(1));
  protocol_.OnMessage(StockRequest(StockPush(0, Floats({0}))));
  RunAll();
  EXPECT_EQ(outbox_.All().size(), 4u);
  protocol_.OnMessage(StockRequest(StockTwoBit(0, 1, {std::byte{0xc0}, {}, {}, {}})));
  RunAll();
  EXPECT_TRUE(outbox_.empty()) << "a round of two";
  StockAsk both = StockPush(1, Floats({1}));
  both.pull = true;
  protocol_.OnMessage(StockRequest(both));
  RunAll();
  std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(FloatsIn(answers[1]), std::vector<float>{1.5F});
  EXPECT_TRUE(failures_.empty());
}

TEST_F(MxnetProtocolTest, TheProfilersFileIsThereBeforeTheAnswer) {
  bool written = false;
  MxnetProtocol protocol{
      Options(),
      &dispatcher_,
      {{&shard_, 0}},
      {[&](const ps::Message&) { written = std::filesystem::exists("rank0_answered.json"); },
       [](const Status&) {}, hosted_, MakeBounds(Options())},
      {},
      log_};
  for (const char* command : {"filename:answered.json,0", "11", "01"}) {
    EXPECT_FALSE(written);
    protocol.OnMessage(Command(5, command));
  }
  EXPECT_TRUE(std::filesystem::remove("rank0_answered.json"));
  EXPECT_TRUE(written);
}

TEST_F(MxnetProtocolTest, AnUnknownCompressionFailsTheJob) {
  for (const std::string body : {"", "1", "2,0.5", "1,", "1,-1", "1,0", "1,inf", "1,nan", "1,1x"}) {
    MxnetProtocol protocol(Options(), &dispatcher_, {{&shard_, 0}}, Ways(), [] {}, log_);
    failures_.clear();
    protocol.OnMessage(Command(4, body));
    RunAll();
    ASSERT_EQ(failures_.size(), 1u) << body;
    EXPECT_THAT(failures_[0].message(), testing::HasSubstr("gradient compression '" + body));
  }
}

TEST_F(MxnetProtocolTest, AWorkerThatAsksAfterTheFailureIsEnded) {
  protocol_.Fail(Status::Unavailable("lost worker 1"));
  protocol_.OnMessage(Data());
  RunAll();
  EXPECT_TRUE(IsEnd(outbox_.Next()));
}

TEST_F(MxnetProtocolTest, ResponsesControlAndStrangersAreIgnored) {
  ps::Message response = Command(2);
  response.meta.request = false;
  ps::Message control = Command(2);
  control.meta.is_control = true;
  ps::Message stranger = Data();
  stranger.peer = ps::kEmpty;
  for (ps::Message* message : {&response, &control, &stranger}) {
    protocol_.OnMessage(std::move(*message));
  }
  RunAll();
  EXPECT_TRUE(outbox_.empty());
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(stops_, 0);
}

}  // namespace
}  // namespace bs::server
