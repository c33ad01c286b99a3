// LinkBudget: over a link whose rate only the test knows.
#include "transport/tcp/link_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "sim/sim_executor.h"

namespace ps::test {
namespace {

using bs::Duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Connections that always have something to send, over one link that carries them in turn.
class LinkBudgetTest : public ::testing::Test {
 protected:
  struct Connection {
    uint64_t held_bytes = 0;
    uint64_t sent_bytes = 0;
    uint64_t waiting_bytes = 0;
    bool stuck = false;  // the other end acknowledges nothing
    std::unique_ptr<LinkBudget::Member> member;
  };

  LinkBudgetTest() {
    budget_ = std::make_unique<LinkBudget>(
        &executor_, milliseconds(4),
        LinkBudget::Kernel{.held_bytes = [this](int fd) { return connections_.at(fd).held_bytes; },
                           .round_trip = [this](int) { return round_trip_; }});
  }
  void TearDown() override {
    connections_.clear();
    budget_.reset();
  }

  void Add(int fd, uint64_t waiting_bytes) {
    Connection& connection = connections_[fd];
    connection.waiting_bytes = waiting_bytes;
    connection.member =
        std::make_unique<LinkBudget::Member>(budget_.get(), fd, [this, fd] { Pump(fd); });
    executor_.Post([this, fd] { Pump(fd); });
  }
  void Pump(int fd) {
    Connection& connection = connections_.at(fd);
    while (connection.waiting_bytes > 0) {
      const uint64_t room = connection.member->Room(0);
      if (room == 0) return;
      const uint64_t sent = std::min({room, connection.waiting_bytes, uint64_t{8} << 10U});
      connection.member->Sent(sent);
      connection.held_bytes += sent;
      connection.sent_bytes += sent;
      connection.waiting_bytes -= sent;
      most_held_ = std::max(most_held_, Held());
    }
  }
  uint64_t Held() const {
    uint64_t held = 0;
    for (const auto& [fd, connection] : connections_) held += connection.held_bytes;
    return held;
  }
  // The link carries bytes for so long, all connections' in equal parts, as TCP does about.
  void Carry(double bytes_per_second, Duration duration) {
    constexpr Duration kStep = microseconds(100);
    for (Duration passed{}; passed < duration; passed += kStep) {
      clock_.RunUntil(clock_.Now() + kStep);
      auto left = static_cast<uint64_t>(bytes_per_second * 1e-4);
      for (int pass = 0; pass < 3 && left > 0; ++pass) {
        uint64_t busy = 0;
        for (const auto& [fd, c] : connections_) busy += !c.stuck && c.held_bytes > 0 ? 1 : 0;
        if (busy == 0) break;
        const uint64_t each = left / busy + 1;
        for (auto& [fd, c] : connections_) {
          if (c.stuck) continue;
          const uint64_t gone = std::min({c.held_bytes, each, left});
          c.held_bytes -= gone;
          left -= gone;
        }
      }
      idle_bytes_ += left;
    }
  }

  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  Duration round_trip_{};
  std::unique_ptr<LinkBudget> budget_;
  std::map<int, Connection> connections_;
  uint64_t most_held_ = 0;
  uint64_t idle_bytes_ = 0;
};

constexpr uint64_t kMuch = uint64_t{1} << 30U;

TEST_F(LinkBudgetTest, TheKernelHoldsFourMillisecondsOfAMeasuredLink) {
  for (int fd = 0; fd < 8; ++fd) Add(fd, kMuch);
  Carry(12.5e6, seconds(1));
  most_held_ = 0;
  idle_bytes_ = 0;
  Carry(12.5e6, seconds(1));
  EXPECT_NEAR(static_cast<double>(budget_->limit_bytes()), 50e3, 5e3);
  EXPECT_LE(most_held_, budget_->limit_bytes() + (8U << 10U));
  EXPECT_LE(idle_bytes_, 125'000U);  // a hundredth
}

TEST_F(LinkBudgetTest, ASmallRestOfAMessageGoesAtOnce) {
  constexpr uint64_t kShare = LinkBudget::kFirstBytes / 4;
  for (int fd = 1; fd < 4; ++fd) Add(fd, 1);  // with the first, as many as have a share each
  Add(0, 0);
  clock_.RunUntil(clock_.Now());
  LinkBudget::Member* const member = connections_.at(0).member.get();
  member->Sent(kShare);
  connections_.at(0).held_bytes = kShare;
  EXPECT_EQ(member->Room(kShare), kShare);
  EXPECT_EQ(member->Room(kShare + 1), 0U) << "that much may wait";
  EXPECT_EQ(member->Room(1), 0U) << "it waits for its turn";
}

TEST_F(LinkBudgetTest, ConnectionsGetEqualParts) {
  for (int fd = 0; fd < 5; ++fd) Add(fd, kMuch);
  Carry(62.5e6, seconds(1));
  for (const auto& [fd, connection] : connections_) {
    EXPECT_NEAR(static_cast<double>(connection.sent_bytes), 12.5e6, 1e6) << fd;
  }
}

TEST_F(LinkBudgetTest, ALinkFasterThanTheFirstGuessIsFilledAfterAWhile) {
  round_trip_ = milliseconds(10);  // 256 KiB each would be 25 MB/s
  Add(0, kMuch);
  // What is sent is acknowledged a round trip later, so the link needs as much on its way.
  for (int i = 0; i < 100; ++i) {
    const uint64_t held = connections_.at(0).held_bytes;
    const double rate = std::min(250e6, static_cast<double>(held) / 0.010);
    Carry(rate, milliseconds(10));
  }
  EXPECT_GE(budget_->limit_bytes(), 2'500'000U);
}

TEST_F(LinkBudgetTest, ASlowerLinkIsNoticedWithinSeconds) {
  for (int fd = 0; fd < 2; ++fd) Add(fd, kMuch);
  Carry(125e6, seconds(1));
  EXPECT_NEAR(static_cast<double>(budget_->limit_bytes()), 500e3, 50e3);
  Carry(12.5e6, seconds(4));
  EXPECT_NEAR(static_cast<double>(budget_->limit_bytes()), 50e3, 5e3);
}

TEST_F(LinkBudgetTest, APeerThatDoesNotReadStopsNoOther) {
  for (int fd = 0; fd < 4; ++fd) Add(fd, kMuch);
  connections_.at(2).stuck = true;
  Carry(12.5e6, seconds(2));
  for (const int fd : {0, 1, 3}) EXPECT_GE(connections_.at(fd).sent_bytes, 7'000'000U) << fd;
  EXPECT_LE(connections_.at(2).sent_bytes, LinkBudget::kFirstBytes);
}

TEST_F(LinkBudgetTest, ManyPeersThatDoNotReadStopNoOther) {
  for (int fd = 0; fd < 8; ++fd) Add(fd, kMuch);
  Carry(12.5e6, milliseconds(500));
  for (int fd = 0; fd < 6; ++fd) connections_.at(fd).stuck = true;
  const uint64_t before = connections_.at(6).sent_bytes;
  Carry(12.5e6, seconds(3));
  EXPECT_GE(connections_.at(6).sent_bytes - before, 16'000'000U);
  EXPECT_GE(budget_->limit_bytes(), 40'000U);
  for (int fd = 0; fd < 6; ++fd) connections_.at(fd).stuck = false;
  const uint64_t theirs = connections_.at(3).sent_bytes;
  Carry(12.5e6, seconds(1));
  EXPECT_GE(connections_.at(3).sent_bytes - theirs, 1'000'000U);
}

TEST_F(LinkBudgetTest, PeersThatReadSlowlyStopNoOther) {
  for (int fd = 0; fd < 8; ++fd) Add(fd, kMuch);
  Carry(125e6, milliseconds(500));
  const uint64_t before = connections_.at(7).sent_bytes;
  for (int fd = 0; fd < 4; ++fd) connections_.at(fd).stuck = true;
  for (int i = 0; i < 3000; ++i) {
    for (int fd = 0; fd < 4; ++fd) {
      uint64_t& held = connections_.at(fd).held_bytes;  // 1 Mbit/s each
      held -= std::min<uint64_t>(held, 125);
    }
    Carry(125e6, milliseconds(1));
  }
  EXPECT_GE(connections_.at(7).sent_bytes - before, 60'000'000U);
}

TEST_F(LinkBudgetTest, AQuietLinkKeepsItsLimitWhileOneDoesNotRead) {
  for (int fd = 0; fd < 2; ++fd) Add(fd, kMuch);
  Carry(62.5e6, seconds(1));
  const uint64_t limit = budget_->limit_bytes();
  connections_.at(0).stuck = true;
  connections_.at(1).waiting_bytes = 0;
  Carry(62.5e6, seconds(5));
  EXPECT_GE(budget_->limit_bytes(), limit / 2);
}

TEST_F(LinkBudgetTest, OneConnectionHasTheWholeLink) {
  for (int fd = 0; fd < 4; ++fd) Add(fd, fd == 0 ? kMuch : 0);
  Carry(62.5e6, seconds(1));
  EXPECT_GE(connections_.at(0).sent_bytes, 60'000'000U);
}

TEST_F(LinkBudgetTest, AConnectionThatEndsGivesItsShareBack) {
  for (int fd = 0; fd < 3; ++fd) Add(fd, kMuch);
  Carry(12.5e6, milliseconds(100));
  connections_.at(1).stuck = true;
  Carry(12.5e6, milliseconds(100));
  connections_.erase(1);
  connections_.erase(2);
  const uint64_t before = connections_.at(0).sent_bytes;
  Carry(12.5e6, seconds(1));
  EXPECT_GE(connections_.at(0).sent_bytes - before, 12'000'000U);
}

}  // namespace
}  // namespace ps::test
