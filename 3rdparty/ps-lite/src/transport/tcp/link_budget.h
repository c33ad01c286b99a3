// LinkBudget: how much the kernel may hold for the connections to other hosts, all together.
//
// Nothing can overtake bytes that the kernel has.  It takes some 100 KB for each connection, which
// with eight peers is 60 ms of a link of 100 Mbit/s: longer than most layers compute.  So all
// connections share the bytes that the link carries in a short time.  Beyond that they take turns,
// because a peer whose bytes all waited would leave its own link idle.
//
// The rate of the link is measured while connections wait: the bytes that other hosts acknowledged,
// at the highest rate of the last two seconds in which a connection waited.  BBR measures in the
// same way (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016).  A limit
// that is too small for the link grows: the link carries a limit in each round trip, and the next
// limit is larger.
//
// A peer that takes longer than kStalled and a round trip for its share reads too slowly.  It keeps
// the share, which counts no longer, so that such peers leave the link to the other connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>

#include "base/executor.h"

namespace ps {

// Confined to `executor`.
class LinkBudget {
 public:
  // Asked about the connection `fd`.
  struct Kernel {
    std::function<uint64_t(int fd)> held_bytes;      // unsent or unacknowledged
    std::function<bs::Duration(int fd)> round_trip;  // of an idle network
  };
  // Where nothing is measured yet, and at least.
  static constexpr uint64_t kFirstBytes = 256U << 10U;
  static constexpr uint64_t kLeastBytes = 32U << 10U;
  static constexpr bs::Duration kStalled = std::chrono::milliseconds(50);
  // A connection's turn: the bytes that the kernel takes at once for a segment.
  static constexpr uint64_t kTurnBytes = 64U << 10U;

  // `ahead`: the time of the link that the kernel may hold, besides a round trip.
  LinkBudget(bs::Executor* executor, bs::Duration ahead, Kernel kernel);
  LinkBudget(const LinkBudget&) = delete;
  LinkBudget& operator=(const LinkBudget&) = delete;
  // REQUIRES: no member is left.
  ~LinkBudget();

  // A connection's share.
  class Member {
   public:
    // `resume` is called when there is room again, and may destroy the member.
    Member(LinkBudget* budget, int fd, std::function<void()> resume);
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member();

    // How many bytes the kernel may be given now.  0: `resume` is called later.  `begun_bytes` are
    // left of messages that nothing overtakes any more.  If they are no more than a share, they may
    // go: small messages, such as acknowledgements, would wait behind them.
    uint64_t Room(uint64_t begun_bytes) {
      begun_bytes_ = begun_bytes;
      return budget_->RoomOf(this);
    }
    void Sent(uint64_t size_bytes);

   private:
    friend class LinkBudget;
    LinkBudget* const budget_;
    const int fd_;
    const std::function<void()> resume_;
    uint64_t begun_bytes_ = 0;
    uint64_t held_bytes_ = 0;  // at most; exact after Refresh
    bs::TimePoint marked_{};
    uint64_t marked_bytes_ = 0;  // of the bytes held at the mark, the rest held now
    bool stalled_ = false;       // there are some for too long, so nothing of it counts
    bool waits_ = false;
    bool active_ = false;  // counted in active_members_
  };

  uint64_t limit_bytes() const { return limit_bytes_; }

 private:
  uint64_t RoomOf(Member* member);
  uint64_t Share() const;
  // True if `member` has the turn, or none is needed, and the rest of its message is small.
  bool MayFinish(const Member& member) const;
  bool IsFull(const Member& member) const;
  // Counts `member` as active if it reads, and has or wants something on its way.
  void Count(Member* member);
  void Refresh();
  void Measure(bs::TimePoint now);
  void AwaitRoom();
  void GiveTurns();
  // False if none sent anything, or all room is taken.
  bool GiveEachATurn();

  bs::Executor* const executor_;
  const bs::Duration ahead_;
  const Kernel kernel_;
  std::set<Member*> members_;    // not owned
  std::deque<Member*> waiting_;  // in turn
  size_t active_members_ = 0;
  Member* in_turn_ = nullptr;
  uint64_t turn_bytes_ = 0;  // left to in_turn_
  bs::TimerId timer_ = 0;
  uint64_t limit_bytes_ = kFirstBytes;
  uint64_t held_bytes_ = 0;  // of all members that are not stalled
  bs::Duration round_trip_{};
  bool idle_ = false;     // nothing was acknowledged between the latest two looks
  bs::Duration pause_{};  // before the next look
  bs::TimePoint refreshed_{};

  // Since connections began to wait, or the last sample.
  bool samples_ = false;
  bs::TimePoint sample_begin_{};
  uint64_t acknowledged_bytes_ = 0;
  // Bytes a second.
  double rate_ = 0;
  double best_ = 0;      // since epoch_
  double previous_ = 0;  // in the epoch before
  bs::TimePoint epoch_{};
};

}  // namespace ps
