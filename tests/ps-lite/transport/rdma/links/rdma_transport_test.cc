// The TCP transport with RDMA: when it is used, when it is not, and how a link comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ps-lite/transport/loop_world.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "ps-lite/transport/transport_node.h"
#include "transport/tcp/tcp_transport.h"

namespace ps::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RdmaTransportTest : public ::testing::Test {
 protected:
  RdmaTransportTest() = default;
  explicit RdmaTransportTest(const FabricOptions& fabric) : fabric_(fabric) {}
  static constexpr size_t kBytes = 100'000;

  // Node 1 of a world receives, node 2 sends.
  std::unique_ptr<Transport> Make(bs::LoopThread* loop, size_t number) {
    TcpOptions options;
    options.shared_bytes = shared_bytes_;
    if (number != without_) {
      options.rdma.device = "sim" + std::to_string(++num_nics_);
      nics_[number] = fabric_.Add(options.rdma.device, {.most_pinned_bytes = most_pinned_bytes_});
      nics_[number]->RefuseQueuePairs(number == refuses_);
      nics_[number]->SetSilent(number == silent_);
      options.rdma.verbs = nics_[number];
      options.rdma.path.gid_index = 1;
      options.rdma.counts = counts_[number] = std::make_shared<RdmaCounts>();
    }
    const auto hear = [this](bs::LogLevel, std::string_view line) {
      const bs::MutexLock lock(&mutex_);
      log_.append(line).push_back('\n');
    };
    return MakeTcpTransport(loop, options, bs::Logger("", bs::LogLevel::kWarning, hear));
  }
  void Begin(bool known = true) {
    world_ = std::make_unique<LoopWorld>(
        [this](bs::LoopThread* loop, size_t number) { return Make(loop, number); });
    receiver_ = std::make_unique<TransportNode>(world_.get(), [known](int32_t) { return known; });
    Address address = world_->AnyAddress();
    address.port = receiver_->Bind(address).value();
    sender_ = std::make_unique<TransportNode>(world_.get());
    sender_->Connect(8, address, 9);
  }
  void End() {
    sender_.reset();
    receiver_.reset();
    world_.reset();  // the last task of a loop may still hold its transport
    EXPECT_THAT(fabric_.Violations(), ::testing::IsEmpty());
    EXPECT_EQ(fabric_.Counts().queue_pairs, 0U);
    EXPECT_EQ(fabric_.Counts().regions, 0U);
  }
  void Send(int32_t number) {
    Message message = Native(8, number);
    message.data.push_back(Frame::Borrow(bytes_, {}));
    sender_->Send(std::move(message));
  }
  // Sends until one message more has come.
  void SendUntilOneComes(int32_t number) {
    Send(number);
    ASSERT_TRUE(receiver_->AwaitMessages(1));
    receiver_->TakeMessages();
  }
  uint64_t reads() const { return fabric_.Counts().reads; }
  // The warnings of the nodes.
  std::string TakeLog() {
    const bs::MutexLock lock(&mutex_);
    return std::exchange(log_, {});
  }

  const std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes, std::byte{5});
  uint64_t shared_bytes_ = 0;
  uint64_t most_pinned_bytes_ = uint64_t{1} << 40U;
  // Nodes: without RDMA, without queue pairs, and whose packets do not pass.
  size_t without_ = 0;
  size_t refuses_ = 0;
  size_t silent_ = 0;
  int num_nics_ = 0;
  bs::Mutex mutex_;
  std::string log_ BS_GUARDED_BY(mutex_);
  SimulatedFabric fabric_;
  std::map<size_t, std::shared_ptr<SimulatedNic>> nics_;
  std::map<size_t, std::shared_ptr<RdmaCounts>> counts_;
  std::unique_ptr<LoopWorld> world_;
  std::unique_ptr<TransportNode> receiver_;
  std::unique_ptr<TransportNode> sender_;
};

TEST_F(RdmaTransportTest, DataGoesByReadWhereBothEndsHaveRdma) {
  Begin();
  SendUntilOneComes(1);
  EXPECT_GT(reads(), 0U);
  EXPECT_EQ(counts_[2]->sent_bytes, kBytes);
  EXPECT_EQ(counts_[1]->received_bytes, kBytes);
  EXPECT_EQ(counts_[1]->links, 1U);
  EXPECT_EQ(sender_->CarriersOf(8), (bs::Carriers{.to = bs::Carrier::kRdma}));
  EXPECT_EQ(receiver_->CarriersOf(9), (bs::Carriers{.from = bs::Carrier::kRdma}));
  End();
}

TEST_F(RdmaTransportTest, LentMemoryIsSentWithoutACopy) {
  LoopWorld world([this](bs::LoopThread* loop, size_t number) { return Make(loop, number); });
  TransportNode receiver(&world);
  Address address = world.AnyAddress();
  address.port = receiver.Bind(address).value();
  auto sender = world.NewTransport(world.NewExecutor());
  std::vector<std::byte> bytes(kBytes, std::byte{6});
  auto lent = sender->Lend(bytes, Lending::kSent);
  EXPECT_NE(lent, nullptr);
  EXPECT_EQ(sender->Lend(bytes, Lending::kSent), nullptr) << "it is lent already";
  sender->Start({});
  sender->Connect(8, address, 9);
  Message message = Native(8, 1);
  message.data.push_back(Frame::Borrow(bytes, {}));
  sender->Send(std::move(message));
  ASSERT_TRUE(receiver.AwaitMessages(1));
  EXPECT_EQ(counts_[2]->sent_bytes, kBytes);
  EXPECT_EQ(counts_[2]->bounced_bytes, 0U);
  sender->Close(bs::Duration::zero());
  sender.reset();
}

TEST_F(RdmaTransportTest, DataGoesOverTcpWhereOneEndHasNone) {
  for (const size_t without : {1, 2}) {
    without_ = without;
    Begin();
    SendUntilOneComes(1);
    EXPECT_EQ(reads(), 0U);
    EXPECT_EQ(sender_->CarriersOf(8).to, bs::Carrier::kTcp);
    EXPECT_EQ(receiver_->CarriersOf(9).from, bs::Carrier::kTcp);
    const std::string log = TakeLog();
    if (without == 1) {
      EXPECT_THAT(log, AllOf(HasSubstr("no RDMA to server 0 at "), HasSubstr("it offers none: ")));
    } else {
      EXPECT_EQ(log, "") << "it wants none";
    }
    End();
  }
}

TEST_F(RdmaTransportTest, MemoryThatBothShareGoesBefore) {
  shared_bytes_ = 1U << 20U;
  Begin();
  SendUntilOneComes(1);
  EXPECT_EQ(fabric_.Counts().queue_pairs, 0U);
  End();
}

TEST_F(RdmaTransportTest, AnEndThatCannotHaveALinkLeavesTheDataToTcp) {
  refuses_ = 1;
  Begin();
  SendUntilOneComes(1);
  EXPECT_EQ(reads(), 0U);
  EXPECT_THAT(TakeLog(), HasSubstr("it refuses: "));
  End();
}

TEST_F(RdmaTransportTest, WithoutLockedMemoryDataGoesOverTcp) {
  most_pinned_bytes_ = 0;
  Begin();
  SendUntilOneComes(1);
  EXPECT_EQ(reads(), 0U);
  EXPECT_THAT(TakeLog(), HasSubstr("the card gets no memory for the slots of a peer (16384 bytes): "
                                   "sim2: ibv_reg_mr: Cannot allocate memory"));
  End();
}

TEST_F(RdmaTransportTest, ALinkThatBreaksComesBackAndAfterThreeTimesTcpTakesOver) {
  Begin();
  SendUntilOneComes(0);
  for (int i = 1; i <= 3; ++i) {
    const uint64_t before = reads();
    EXPECT_GT(before, 0U);
    nics_[2]->FailNext(Completion::Result::kRetriesExceeded);
    Send(10 * i);  // may be lost
    ASSERT_TRUE(sender_->AwaitDisconnects(8, i));
    ASSERT_TRUE(sender_->AwaitConnects(8, i + 1));
    receiver_->TakeMessages();
    SendUntilOneComes(10 * i + 1);
    EXPECT_EQ(reads() > before, i < 3) << "break " << i;
  }
  const auto exceeded = static_cast<size_t>(Completion::Result::kRetriesExceeded);
  EXPECT_EQ(counts_[2]->breaks.at(exceeded), 3U);
  EXPECT_EQ(counts_[2]->breaks.at(0), 0U);
  End();
}

TEST_F(RdmaTransportTest, AFailedReadBreaksTheLinkToo) {
  Begin();
  SendUntilOneComes(0);
  nics_[1]->FailNext(Completion::Result::kRemoteAccess);
  Send(1);
  ASSERT_TRUE(sender_->AwaitDisconnects(8, 1));
  ASSERT_TRUE(sender_->AwaitConnects(8, 2));
  receiver_->TakeMessages();
  SendUntilOneComes(2);
  End();
}

TEST_F(RdmaTransportTest, APeerOutsideTheJobGetsNoLink) {
  Begin(false);
  sender_->Send(Native(8, 1));
  EXPECT_TRUE(receiver_->AwaitMessages(1));
  EXPECT_EQ(fabric_.Counts().sends, 0U);
  End();
}

TEST_F(RdmaTransportTest, PacketsThatDoNotPassLeaveTheDataToTcp) {
  silent_ = 2;
  Begin();
  SendUntilOneComes(1);
  EXPECT_EQ(reads(), 0U);
  EXPECT_THAT(TakeLog(), HasSubstr("let packets of RDMA pass (for RoCE UDP port 4791)"));
  End();
}

// Whose cards send a packet again for longer than a proof may take.
class LateProofTest : public RdmaTransportTest {
 protected:
  LateProofTest() : RdmaTransportTest({.retry_time = std::chrono::seconds(60)}) {}
};

TEST_F(LateProofTest, LeavesTheDataToTcpAndIsToldOnce) {
  silent_ = 2;
  Begin();
  SendUntilOneComes(1);
  EXPECT_EQ(reads(), 0U);
  const std::string log = TakeLog();
  EXPECT_THAT(log, AllOf(HasSubstr("RDMA with 127.0.0.1:"),
                         HasSubstr("its proof has not come in time: let packets of RDMA pass")));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  End();
}

TEST_F(RdmaTransportTest, AnAnswerThatDoesNotPassLeavesTheConnection) {
  silent_ = 1;
  Begin();
  SendUntilOneComes(1);
  for (int i = 0; i < 5000 && fabric_.Counts().queue_pairs > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(fabric_.Counts().queue_pairs, 0U) << "both ends have given up";
  SendUntilOneComes(2);
  EXPECT_EQ(reads(), 0U);
  EXPECT_EQ(receiver_->disconnects(9), 0);
  End();
}

// The sanitizers see what a task of the loop touches after the end of its transport.
TEST_F(RdmaTransportTest, TransportMayEndAtAnyMomentOfALink) {
  const auto settle = [](int steps) {
    std::this_thread::sleep_for(steps * std::chrono::microseconds(50));
  };
  for (int i = 0; i < 240; ++i) {
    Begin();
    settle(i % 60);
    sender_.reset();
    settle(i % 7);
    End();
  }
}

}  // namespace
}  // namespace ps::test
