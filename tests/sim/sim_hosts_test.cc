// Hosts of a SimNetwork: interfaces are shared, full duplex, bounded ahead, and their thread takes
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sim/sim_network.h"

namespace bs::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kBytes = 100'000;  // a tenth of a second of the links below

class SimHostsTest : public ::testing::Test {
 protected:
  struct Arrival {
    int at;
    std::string text;  // its first letter
    double seconds;
  };
  struct Node {
    std::unique_ptr<SimExecutor> executor;
    std::unique_ptr<ps::Transport> transport;
  };

  // Nodes 0, 1, ..., each connected to each; each `together` in a row on one host.
  void Make(int count, const SimHostOptions& host, uint64_t payload_scale = 1, int together = 1) {
    SimNetworkOptions options;
    options.delay_min = options.delay_max = Duration(0);
    options.payload_scale = payload_scale;
    network_ = std::make_unique<SimNetwork>(&clock_, options);
    for (int i = 0; i < count; ++i) {
      Node& node = nodes_.emplace_back();
      node.executor = std::make_unique<SimExecutor>(&clock_);
      node.transport = network_->MakeTransport(node.executor.get());
      const auto first = static_cast<size_t>(i - i % together);
      network_->PutOnHost(node.transport.get(), host,
                          i % together == 0 ? nullptr : nodes_[first].transport.get());
      ps::Transport::Handler handler;
      handler.on_message = [this, i](const ps::Message& message) {
        arrivals_.push_back({i, std::string(message.data.at(0).text().substr(0, 1)), Now()});
      };
      node.transport->Start(handler);
      node.transport->Bind({"a", i + 1}, [](const Result<int32_t>&) {});
    }
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < count; ++j) {
        if (i != j) nodes_[static_cast<size_t>(i)].transport->Connect(j, {"a", j + 1}, i);
      }
    }
    clock_.RunUntil(clock_.Now() + milliseconds(1));
    begin_ = clock_.Now();
  }
  void Send(int from, int to, char letter, int32_t priority = 0, int bytes = kBytes) {
    ps::Message message;
    message.peer = to;
    message.meta.priority = priority;
    message.data.push_back(ps::Frame::Copy(std::string(static_cast<size_t>(bytes), letter)));
    nodes_[static_cast<size_t>(from)].transport->Send(std::move(message));
  }
  double Now() const { return std::chrono::duration<double>(clock_.Now() - begin_).count(); }
  void Run() { clock_.RunUntil(clock_.Now() + seconds(60)); }
  void TearDown() override {
    nodes_.clear();
    network_.reset();
  }

  SimClock clock_{1};
  TimePoint begin_{};
  std::unique_ptr<SimNetwork> network_;
  std::vector<Node> nodes_;
  std::vector<Arrival> arrivals_;
};

SimHostOptions Megabyte() {
  SimHostOptions host;
  host.bytes_per_second = 1e6;
  return host;
}

TEST_F(SimHostsTest, AMessageTakesItsBytesOnceFromEndToEnd) {
  Make(2, Megabyte());
  Send(0, 1, 'a');
  Run();
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.1, 0.001);
}

TEST_F(SimHostsTest, BothWaysAtOnceAreAsFastAsOne) {
  Make(2, Megabyte());
  Send(0, 1, 'a');
  Send(1, 0, 'b');
  Run();
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.1, 0.001);
  EXPECT_NEAR(arrivals_.at(1).seconds, 0.1, 0.001);
}

TEST_F(SimHostsTest, TwoSendersShareTheInterfaceOfOneReceiver) {
  Make(3, Megabyte());
  Send(0, 2, 'a');
  Send(1, 2, 'b');
  Run();
  EXPECT_NEAR(arrivals_.at(1).seconds, 0.2, 0.001);
}

TEST_F(SimHostsTest, OneSenderSharesItsInterfaceAmongReceivers) {
  Make(3, Megabyte());
  for (int i = 0; i < 3; ++i) Send(0, 1, 'a');
  Send(0, 2, 'b');
  Run();
  EXPECT_NEAR(arrivals_.at(3).seconds, 0.4, 0.001);
}

TEST_F(SimHostsTest, NodesOfOneHostShareItsInterfaceAndReachEachOtherWithoutIt) {
  Make(6, Megabyte(), 1, 2);
  for (int i = 0; i < 2; ++i) {
    Send(0, 2, 'a');
    Send(1, 4, 'b');
  }
  Send(1, 0, 'c');
  Run();
  ASSERT_EQ(arrivals_.size(), 5U);
  EXPECT_EQ(arrivals_[0].text, "c");
  EXPECT_NEAR(arrivals_[0].seconds, 0, 0.001);
  EXPECT_NEAR(arrivals_[1].seconds, 0.1, 0.001);
  EXPECT_NEAR(arrivals_[4].seconds, 0.4, 0.001);
  EXPECT_NE(arrivals_[1].text, arrivals_[2].text) << "they leave in turn";
}

TEST_F(SimHostsTest, NodesOfOneHostReceiveThroughOneInterface) {
  Make(6, Megabyte(), 1, 2);
  Send(2, 0, 'a');
  Send(4, 1, 'b');
  Run();
  ASSERT_EQ(arrivals_.size(), 2U);
  EXPECT_NEAR(arrivals_[1].seconds, 0.2, 0.001);
}

TEST_F(SimHostsTest, AnUrgentMessageOvertakesUncommittedMessages) {
  SimHostOptions host = Megabyte();
  host.queued_bytes = 1;  // one message at a time
  Make(2, host);
  for (int i = 0; i < 4; ++i) Send(0, 1, 'a');
  Send(0, 1, 'u', 1);
  Run();
  EXPECT_EQ(arrivals_.at(1).text, "u");
  EXPECT_EQ(network_->CountersOf(nodes_[0].transport.get()).most_waiting, 4U);
}

TEST_F(SimHostsTest, AnUrgentMessageWaitsForUnacknowledgedBytesOnly) {
  SimHostOptions host = Megabyte();
  host.ahead_bytes = host.ahead_each_bytes = kBytes;
  Make(2, host);
  for (int i = 0; i < 4; ++i) Send(0, 1, 'a');
  Send(0, 1, 'u', 1);
  Run();
  EXPECT_EQ(arrivals_.at(1).text, "u");
  EXPECT_NEAR(arrivals_.at(4).seconds, 0.5, 0.001);
}

TEST_F(SimHostsTest, OnePeerHasAShareOfTheBytesAhead) {
  SimHostOptions host = Megabyte();
  host.ahead_bytes = 2 * kBytes;
  host.ahead_each_bytes = kBytes;
  Make(3, host);
  for (int i = 0; i < 4; ++i) Send(0, 1, 'a');
  Send(0, 2, 'b');
  Run();
  EXPECT_EQ(arrivals_.at(1).text, "b");
  EXPECT_NEAR(arrivals_.at(4).seconds, 0.5, 0.001);
}

// What waits for a receiver that is busy does not keep others waiting.
TEST_F(SimHostsTest, AFullReceiverStopsNoOtherReceiver) {
  SimHostOptions host = Megabyte();
  host.queued_bytes = 3 * kBytes;
  Make(4, host);
  for (const int from : {0, 1}) {
    for (int i = 0; i < 6; ++i) Send(from, 2, 'a');
  }
  Send(0, 3, 'b');
  Run();
  const auto other = std::find_if(arrivals_.begin(), arrivals_.end(),
                                  [](const Arrival& arrival) { return arrival.text == "b"; });
  ASSERT_NE(other, arrivals_.end());
  EXPECT_LE(other->seconds, 0.8);
  EXPECT_NEAR(arrivals_.at(12).seconds, 1.2, 0.01);
}

TEST_F(SimHostsTest, CommittedMessagesAreNotOvertaken) {
  Make(2, Megabyte());  // all of it fits the queue
  for (int i = 0; i < 4; ++i) Send(0, 1, 'a');
  Send(0, 1, 'u', 1);
  Run();
  EXPECT_EQ(arrivals_.at(4).text, "u");
}

TEST_F(SimHostsTest, ABusyReceiverHoldsSendersUpAndLetsUrgentMessagesOvertakeThere) {
  SimHostOptions host = Megabyte();
  host.queued_bytes = 1;
  Make(3, host);
  for (int i = 0; i < 4; ++i) Send(0, 2, 'a');
  for (int i = 0; i < 4; ++i) Send(1, 2, 'b');
  Send(1, 2, 'u', 1);
  Run();
  ASSERT_EQ(arrivals_.size(), 9U);
  EXPECT_TRUE(arrivals_.at(1).text == "u" || arrivals_.at(2).text == "u");
  EXPECT_NEAR(arrivals_.at(8).seconds, 0.9, 0.01);
}

TEST_F(SimHostsTest, TheThreadTakesItsTimeAtBothEnds) {
  SimHostOptions host = Megabyte();
  host.message_cost = milliseconds(50);
  host.byte_cost_ns = 100;  // 10 ms each message
  Make(2, host);
  Send(0, 1, 'a');
  Run();
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.06 + 0.1 + 0.06, 0.001);
  EXPECT_NEAR(
      std::chrono::duration<double>(network_->CountersOf(nodes_[0].transport.get()).busy).count(),
      0.06, 0.001);
}

TEST_F(SimHostsTest, PayloadsTakeTheThreadsOfBothEndsTheirOwnTime) {
  SimHostOptions host = Megabyte();
  host.sent_payload_cost_ns = 400;  // 40 ms each message
  host.received_payload_cost_ns = 200;
  Make(2, host, 1000);
  for (int i = 0; i < 2; ++i) Send(0, 1, 'a', 0, kBytes / 1000);
  Run();
  // The second is coded while the first crosses the link.
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.04 + 0.1 + 0.02, 0.001);
  EXPECT_NEAR(arrivals_.at(1).seconds, 0.04 + 0.2 + 0.02, 0.001);
}

TEST_F(SimHostsTest, APayloadForANodeOfTheHostTakesTheThreadsTheirTimeToo) {
  SimHostOptions host = Megabyte();
  host.sent_payload_cost_ns = 400;
  host.received_payload_cost_ns = 200;
  Make(2, host, 1, 2);
  Send(0, 1, 'a');
  Run();
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.04 + 0.02, 0.001);
}

TEST_F(SimHostsTest, APayloadCountsAsManyTimesItsBytes) {
  Make(2, Megabyte(), 1000);
  Send(0, 1, 'a', 0, 100);
  Run();
  EXPECT_NEAR(arrivals_.at(0).seconds, 0.1, 0.001);
}

}  // namespace
}  // namespace bs::sim
