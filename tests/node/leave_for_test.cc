// A goodbye that a process says for the node of another.
#include "node/leave_for.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "membership/control_body.h"
#include "ps-lite/transport/loop_world.h"
#include "transport/tcp/tcp_transport.h"

namespace bs::node {
namespace {

Config MakeConfig(int32_t root_port) {
  const Result<Config> config = ConfigFromProcess({{"DMLC_ROLE", "worker"},
                                                   {"DMLC_NUM_WORKER", "1"},
                                                   {"DMLC_NUM_SERVER", "1"},
                                                   {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                                   {"DMLC_PS_ROOT_PORT", std::to_string(root_port)},
                                                   {"BYTESCHEDULER_LOG_LEVEL", "off"}});
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.value();
}

TEST(LeaveFor, SendsOneGoodbyeToTheSchedulerNode) {
  ps::test::LoopWorld world(
      [](LoopThread* loop, size_t /*number*/) { return ps::MakeTcpTransport(loop, {}, Logger()); });
  ps::test::TransportNode scheduler(&world);
  const Result<int32_t> port = scheduler.Bind(world.AnyAddress());
  ASSERT_TRUE(port.ok());
  ASSERT_TRUE(LeaveFor(MakeConfig(port.value()), "9 7 1").ok());
  ASSERT_TRUE(scheduler.AwaitMessages(1));
  const std::vector<ps::Message> got = scheduler.TakeMessages();
  const ps::Message& said = got.front();
  EXPECT_EQ(said.peer, 9);
  EXPECT_EQ(said.meta.extension.op, ps::Op::kLeave);
  EXPECT_EQ(ps::DecodeMemberBody(said.meta.extension.body).value(),
            (ps::MemberBody{.job = 7, .incarnation = 1}));
}

TEST(LeaveFor, SaysWhyTheWorkerGaveUp) {
  ps::test::LoopWorld world(
      [](LoopThread* loop, size_t /*number*/) { return ps::MakeTcpTransport(loop, {}, Logger()); });
  ps::test::TransportNode scheduler(&world);
  const Result<int32_t> port = scheduler.Bind(world.AnyAddress());
  ASSERT_TRUE(port.ok());
  ASSERT_TRUE(LeaveFor(MakeConfig(port.value()), "9 7 1", "exit code 3").ok());
  ASSERT_TRUE(scheduler.AwaitMessages(1));
  const std::vector<ps::Message> got = scheduler.TakeMessages();
  EXPECT_EQ(got.front().meta.extension.text, "worker 0 gave up: exit code 3");
}

TEST(VouchFor, SpeaksAsAProcessWithoutAPlace) {
  ps::test::LoopWorld world(
      [](LoopThread* loop, size_t /*number*/) { return ps::MakeTcpTransport(loop, {}, Logger()); });
  ps::test::TransportNode scheduler(&world);
  const Result<int32_t> port = scheduler.Bind(world.AnyAddress());
  ASSERT_TRUE(port.ok());
  VouchFor(MakeConfig(port.value()), 2, 17);
  ASSERT_TRUE(scheduler.AwaitMessages(1));
  const std::vector<ps::Message> got = scheduler.TakeMessages();
  EXPECT_EQ(got.front().peer, ps::kEmpty);
  EXPECT_EQ(got.front().meta.extension.op, ps::Op::kVouch);
}

TEST(LeaveFor, RefusesTextThatIsNoPlace) {
  EXPECT_EQ(LeaveFor(MakeConfig(1), "9 7").code(), StatusCode::kInvalidArgument);
}

TEST(LeaveFor, ReturnsWhereThereIsNoSchedulerNode) {
  EXPECT_TRUE(LeaveFor(MakeConfig(1), "9 7 1").ok());
}

}  // namespace
}  // namespace bs::node
