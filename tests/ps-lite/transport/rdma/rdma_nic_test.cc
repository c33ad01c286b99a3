// The device of a node: whom it trusts, and what breaks all its links.
#include "transport/rdma/rdma_nic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/numa.h"
#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "ps-lite/transport/rdma/links/rdma_star.h"
#include "ps-lite/transport/transport_node.h"

namespace ps::test {
namespace {

using ::testing::HasSubstr;

class RdmaNicTest : public ::testing::Test {
 protected:
  static RdmaInbound::Listener Quiet() {
    return {.on_message = [](const bs::Result<Message>&) {},
            .place = {},
            .known = [] { return true; },
            .most_bytes = [](const Meta&) { return kMaxMessageBytes; },
            .on_broken = {}};
  }
  bool Prove() {
    return pair_.Connect(Quiet()).ok() && pair_.Await([&] { return pair_.link()->proved(); });
  }

  RdmaPair pair_{{}};
};

TEST_F(RdmaNicTest, APeerWithThreeBrokenLinksInAMinuteIsNotTriedAgain) {
  RdmaNic* const nic = pair_.sender_nic();
  const bs::Status why = bs::Status::Unavailable("broken");
  for (int i = 0; i < 3; ++i) {
    nic->NoteBreak("often", why);
    if (i == 0) nic->NoteBreak("rarely", why);
    EXPECT_EQ(nic->Trusts("often").ok(), i < 2);
    EXPECT_TRUE(nic->Trusts("rarely").ok());
    pair_.clock().Skip(std::chrono::seconds(10));
  }
  EXPECT_THAT(nic->Trusts("often").message(), HasSubstr("3 times within a minute"));
  pair_.clock().Skip(std::chrono::minutes(10));
  EXPECT_FALSE(nic->Trusts("often").ok()) << "until the next job";
}

TEST_F(RdmaNicTest, BreaksThatAreFarApartAreForgotten) {
  RdmaNic* const nic = pair_.sender_nic();
  for (int i = 0; i < 10; ++i) {
    nic->NoteBreak("rarely", bs::Status::Unavailable("broken"));
    EXPECT_TRUE(nic->Trusts("rarely").ok());
    pair_.clock().Skip(std::chrono::seconds(40));
  }
}

TEST_F(RdmaNicTest, APortThatGoesDownBreaksItsLinksUntilItIsUpAgain) {
  ASSERT_TRUE(Prove());
  pair_.verbs(0)->SetPort(false);
  EXPECT_FALSE(pair_.Await([] { return false; }));
  EXPECT_FALSE(pair_.broken().ok());
  pair_.Break();
  EXPECT_FALSE(pair_.sender_nic()->Trusts("any").ok());
  pair_.verbs(0)->SetPort(true);
  EXPECT_TRUE(pair_.sender_nic()->Trusts("any").ok());
  EXPECT_TRUE(Prove());
}

TEST_F(RdmaNicTest, ADeviceThatIsLostIsNotUsedAgain) {
  ASSERT_TRUE(Prove());
  pair_.verbs(0)->LoseDevice();
  EXPECT_FALSE(pair_.Await([] { return false; }));
  pair_.Break();
  EXPECT_FALSE(pair_.sender_nic()->Trusts("any").ok());
}

TEST_F(RdmaNicTest, CountsItsLinks) {
  EXPECT_EQ(pair_.sender_nic()->counts()->links, 0U);
  ASSERT_TRUE(Prove());
  EXPECT_EQ(pair_.sender_nic()->counts()->links, 1U);
  pair_.Break();
  EXPECT_EQ(pair_.sender_nic()->counts()->links, 0U);
}

TEST(RdmaNicOpenTest, SaysWhyADeviceCannotBeUsed) {
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor executor(&clock);
  SimulatedFabric fabric({.threaded = false});
  const auto open = [&](const std::string& name, int port, const NicOptions& nic, bool up) {
    const auto verbs = fabric.Add(name, nic);
    verbs->SetPort(up);
    RdmaOptions options{.verbs = verbs, .device = name};
    options.path.port = port;
    const RdmaNic::Loop loop{.executor = &executor, .watch = [](int, const auto&) {}};
    const auto opened = RdmaNic::Open(loop, options, bs::Logger("", bs::LogLevel::kOff));
    return opened.ok() ? "" : opened.status().message();
  };
  EXPECT_EQ(open("a", 1, {}, true), "");
  EXPECT_THAT(open("b", 2, {}, true), HasSubstr("port 2 is not there"));
  EXPECT_THAT(open("c", 1, {}, false), HasSubstr("c: port 1 is "));
  EXPECT_THAT(open("d", 1, {.most_reads = 0}, true), HasSubstr("allows no READs"));
}

// The check of locked memory at the start of a node is as good as this sum.
TEST(RdmaNicMemory, BytesThatLinksPinBeforeDataMovesAreKnown) {
  struct Case {
    uint32_t slots;
    uint32_t slot_bytes;
    size_t workers;
  };
  for (const Case& one : {Case{64, 8192, 1}, Case{65, 8192, 3}, Case{128, 8192, 5},
                          Case{4, 1024, 70}, Case{4, 3000, 3}, Case{300, 8192, 3}}) {
    const RdmaStar star(one.workers, [](const Message&) {},
                        {.slot_bytes = one.slot_bytes, .slots = one.slots});
    const auto workers = static_cast<uint32_t>(one.workers);
    EXPECT_EQ(star.server()->counts()->pinned_bytes,
              RdmaBytesOfPeers(workers, one.slots, one.slot_bytes))
        << one.slots << " slots of " << one.slot_bytes << " bytes for " << workers;
    EXPECT_EQ(star.worker(0)->counts()->pinned_bytes,
              RdmaBytesOfPeers(1, one.slots, one.slot_bytes));
  }
}

// All workers push and pull at the same time.
TEST(RdmaNicMemory, AServerPinsLittleForEachWorker) {
  constexpr uint64_t kShare = uint64_t{32} << 20U;  // of the model
  constexpr uint64_t kPartition = uint64_t{256} << 10U;
  constexpr size_t kPartitions = 4;
  constexpr uint64_t kForWorker = 6 * (uint64_t{1} << 20U) / 10;
  for (const size_t workers : {1U, 8U, 64U}) {
    size_t pushed = 0;
    RdmaStar star(workers, [&](const Message&) { ++pushed; });
    ASSERT_TRUE(star.AwaitLinks());
    const std::atomic<uint64_t>& pinned = star.server()->counts()->pinned_bytes;
    EXPECT_LE(pinned, workers * kForWorker + RdmaMemory::kArenaBytes) << workers << " workers";
    // Sums of two rounds.
    const bs::NodeBuffer sums(2 * kShare, -1);
    const auto sums_lent =
        star.server()->memory()->Lend({sums.data(), sums.size_bytes()}, VerbsDevice::Access::kLend);
    std::vector<std::byte> gradients(kPartitions * kPartition);
    std::vector<std::unique_ptr<RdmaMemory::Loan>> lent;
    for (size_t worker = 0; worker < workers; ++worker) {
      auto loan = star.worker(worker)->memory()->Lend(gradients, VerbsDevice::Access::kLend);
      lent.push_back(std::move(loan.value()));
      for (size_t i = 0; i < kPartitions; ++i) {
        Message push = Native(8, 0);
        push.data.push_back(
            Frame::Borrow(std::span(gradients).subspan(i * kPartition, kPartition), {}));
        star.Push(worker, std::move(push));
        Message sum = Native(9, 0);
        sum.data.push_back(Frame::Borrow({sums.data() + i * kPartition, kPartition}, {}));
        star.Pull(worker, std::move(sum));
      }
    }
    uint64_t most = 0;
    EXPECT_TRUE(star.Await([&] {
      most = std::max<uint64_t>(most, pinned);
      return pushed == workers * kPartitions && star.idle();
    }));
    EXPECT_LE(most, 3 * kShare + workers * kForWorker) << workers << " workers";
    // Each link has one message that is being read, and the next has begun.
    EXPECT_LE(most, 2 * kShare + workers * (kForWorker + 2 * kPartition) + RdmaMemory::kArenaBytes);
    RecordProperty("pinned_by_" + std::to_string(workers), std::to_string(most));
  }
}

}  // namespace
}  // namespace ps::test
