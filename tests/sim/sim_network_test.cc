// SimNetwork: order, loss, repeats, bandwidth, death and return, and frames released exactly once.
#include "sim/sim_network.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace bs::sim {
namespace {

using ps::Frame;
using ps::Message;
using std::chrono::milliseconds;
using std::chrono::seconds;

Message TextTo(int32_t peer, const std::string& text, int32_t priority = 0, bool native = true) {
  Message message;
  message.peer = peer;
  message.meta.priority = priority;
  message.meta.extension.version = native ? ps::kExtensionVersion : 0;
  message.data.push_back(Frame::Copy(text));
  return message;
}

// A sender 9 and a receiver 8 at a:1.
class SimNetworkTest : public ::testing::Test {
 protected:
  void Make(const SimNetworkOptions& options) {
    network_ = std::make_unique<SimNetwork>(&clock_, options);
    sender_ = MakeNode(&sender_executor_);
    receiver_ = MakeNode(&receiver_executor_);
    Listen(receiver_.get());
    sender_->Connect(8, {"a", 1}, 9);
    Run(milliseconds(100));
  }
  std::unique_ptr<ps::Transport> MakeNode(SimExecutor* executor) {
    auto node = network_->MakeTransport(executor);
    ps::Transport::Handler handler;
    handler.on_message = [this, executor](Message message) {
      EXPECT_TRUE(executor->IsCurrent());
      from_.push_back(message.peer);
      got_.emplace_back(message.data.at(0).text());
    };
    handler.on_connected = [this](int32_t peer) {
      events_.push_back("up " + std::to_string(peer));
    };
    handler.on_disconnected = [this](int32_t peer) {
      events_.push_back("down " + std::to_string(peer));
    };
    node->Start(handler);
    return node;
  }
  void Listen(ps::Transport* node) {
    node->Bind({"a", 1}, [this](const Result<int32_t>& port) { bound_.push_back(port.ok()); });
  }
  void Run(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  void TearDown() override {
    sender_.reset();
    receiver_.reset();
    network_.reset();
  }

  SimClock clock_{1};
  SimExecutor sender_executor_{&clock_};
  SimExecutor receiver_executor_{&clock_};
  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<ps::Transport> sender_;
  std::unique_ptr<ps::Transport> receiver_;
  std::vector<std::string> got_;
  std::vector<int32_t> from_;
  std::vector<std::string> events_;
  std::vector<bool> bound_;
};

TEST_F(SimNetworkTest, EqualPrioritiesArriveInOrderOfSend) {
  Make({});
  std::vector<std::string> want;
  for (int i = 0; i < 100; ++i) {
    want.push_back(std::to_string(i));
    sender_->Send(TextTo(8, want.back()));
  }
  EXPECT_TRUE(got_.empty());  // never inside the call
  Run(seconds(1));
  EXPECT_EQ(got_, want);
  EXPECT_EQ(from_.front(), 9);
}

TEST_F(SimNetworkTest, UrgentMessageOvertakesOnASlowLink) {
  SimNetworkOptions options;
  options.bytes_per_second = 1000;
  Make(options);
  for (int i = 0; i < 5; ++i) sender_->Send(TextTo(8, std::string(500, 'a')));
  sender_->Send(TextTo(8, "urgent", 1));
  Run(seconds(10));
  ASSERT_EQ(got_.size(), 6U);
  EXPECT_EQ(got_.at(1), "urgent");  // behind the one that was on the wire
}

TEST_F(SimNetworkTest, OnlyNativeMessagesAreLostOrRepeated) {
  SimNetworkOptions options;
  options.loss = 0.3;
  options.repeat = 0.3;
  Make(options);
  for (int i = 0; i < 1000; ++i) sender_->Send(TextTo(8, "native"));
  Run(seconds(10));
  EXPECT_NEAR(static_cast<double>(network_->lost()), 300, 60);
  EXPECT_NEAR(static_cast<double>(network_->repeated()), 210, 60);
  EXPECT_EQ(got_.size(), 1000 - network_->lost() + network_->repeated());
  got_.clear();
  for (int i = 0; i < 1000; ++i) sender_->Send(TextTo(8, "stock", 0, false));
  Run(seconds(10));
  EXPECT_EQ(got_.size(), 1000U);
}

TEST_F(SimNetworkTest, FramesAreReleasedExactlyOnceWhateverHappens) {
  Make({});
  const std::string bytes = "payload";
  int released = 0;
  const auto lend = [&](int32_t peer) {
    Message message = TextTo(peer, "x");
    message.data.clear();
    message.data.push_back(
        Frame::Borrow(std::as_bytes(std::span(bytes)), [&released] { ++released; }));
    return message;
  };
  sender_->Send(lend(8));
  Run(seconds(1));
  EXPECT_EQ(released, 1);
  EXPECT_EQ(got_, std::vector<std::string>{"payload"});
  sender_->Send(lend(77));  // unknown
  EXPECT_EQ(released, 2);
  sender_->Connect(10, {"nobody", 1}, 9);
  sender_->Send(lend(10));
  Run(seconds(1));
  EXPECT_EQ(released, 2);
  sender_->Disconnect(10, Duration(0));
  EXPECT_EQ(released, 3);
  sender_->Send(lend(8));
  network_->Kill(sender_.get());
  Run(seconds(1));
  EXPECT_EQ(released, 4);
}

TEST_F(SimNetworkTest, WaitingMessagesGetTheirLingerEvenIfTheTransportIsGone) {
  Make({});
  sender_->Send(TextTo(8, "last words"));
  sender_->Close(seconds(1));
  sender_.reset();
  Run(seconds(2));
  EXPECT_EQ(got_, std::vector<std::string>{"last words"});
}

TEST_F(SimNetworkTest, KilledNodeIsNoticedAndItsSuccessorReached) {
  Make({});
  EXPECT_EQ(events_, std::vector<std::string>{"up 8"});
  network_->Kill(receiver_.get());
  Run(milliseconds(100));
  EXPECT_EQ(events_.back(), "down 8");
  sender_->Send(TextTo(8, "for the next"));
  Run(seconds(1));
  EXPECT_TRUE(got_.empty());
  const auto successor = MakeNode(&receiver_executor_);
  Listen(successor.get());
  Run(seconds(1));
  EXPECT_EQ(events_.back(), "up 8");
  EXPECT_EQ(got_, std::vector<std::string>{"for the next"});
  EXPECT_EQ(bound_, (std::vector<bool>{true, true}));
}

TEST_F(SimNetworkTest, CutOffNodeComesBack) {
  Make({});
  network_->CutOff(sender_.get(), seconds(1));
  Run(milliseconds(500));
  EXPECT_EQ(events_.back(), "down 8");
  sender_->Send(TextTo(8, "waits"));
  Run(milliseconds(400));
  EXPECT_TRUE(got_.empty());
  Run(seconds(1));
  EXPECT_EQ(events_.back(), "up 8");
  EXPECT_EQ(got_, std::vector<std::string>{"waits"});
}

TEST_F(SimNetworkTest, MutedNodeIsConnectedButNotHeard) {
  Make({});
  network_->Mute(sender_.get());
  sender_->Send(TextTo(8, "unheard", 0, false));
  Run(seconds(1));
  EXPECT_TRUE(got_.empty());
  EXPECT_EQ(events_, std::vector<std::string>{"up 8"});
}

TEST_F(SimNetworkTest, BusyPortIsRefusedAndPortZeroTakesAFreeOne) {
  Make({});
  Listen(sender_.get());
  int32_t port = 0;
  sender_->Bind({"a", 0}, [&](const Result<int32_t>& bound) { port = bound.value(); });
  Run(seconds(1));
  EXPECT_EQ(bound_, (std::vector<bool>{true, false}));
  EXPECT_GT(port, 1);
}

}  // namespace
}  // namespace bs::sim
