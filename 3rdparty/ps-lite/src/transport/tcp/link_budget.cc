// Counts the bytes that the kernel holds, measures how fast they leave, and gives turns.
#include "transport/tcp/link_budget.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace ps {
namespace {

// Several connections have bytes on their way, so that one slow receiver does not stop the other
// receivers.
constexpr size_t kMostShares = 4;
constexpr bs::Duration kSample = std::chrono::milliseconds(5);
constexpr bs::Duration kEpoch = std::chrono::seconds(1);
// Between looks at the kernel.
constexpr bs::Duration kLeastPause = std::chrono::microseconds(100);
constexpr bs::Duration kMostPause = std::chrono::milliseconds(5);
constexpr bs::Duration kMostRoundTrip = std::chrono::seconds(2);
// Less is gone before the next look, so the link would idle and the measured rate shrink.
constexpr bs::Duration kLeastAhead = std::chrono::milliseconds(1);
// A smaller room is not worth a packet.
constexpr uint64_t kLeastRoom = 2U << 10U;
constexpr double kMostLimit = 1U << 30U;

double Seconds(bs::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

LinkBudget::LinkBudget(bs::Executor* executor, bs::Duration ahead, Kernel kernel)
    : executor_(executor), ahead_(std::max(ahead, kLeastAhead)), kernel_(std::move(kernel)) {}

LinkBudget::~LinkBudget() { BS_CHECK(members_.empty() && timer_ == 0); }

LinkBudget::Member::Member(LinkBudget* budget, int fd, std::function<void()> resume)
    : budget_(budget), fd_(fd), resume_(std::move(resume)) {
  budget_->members_.insert(this);
}

LinkBudget::Member::~Member() {
  if (!stalled_) budget_->held_bytes_ -= held_bytes_;
  if (active_) --budget_->active_members_;
  budget_->members_.erase(this);
  std::erase(budget_->waiting_, this);
  if (budget_->in_turn_ == this) budget_->in_turn_ = nullptr;
  // Here, on the executor, nothing can run meanwhile; where the budget ends it may.
  if (budget_->members_.empty() && budget_->timer_ != 0) {
    budget_->executor_->Cancel(std::exchange(budget_->timer_, 0));
  }
}

void LinkBudget::Member::Sent(uint64_t size_bytes) {
  if (held_bytes_ == 0) {
    marked_ = budget_->executor_->Now();
    marked_bytes_ = size_bytes;
  }
  held_bytes_ += size_bytes;
  if (!stalled_) budget_->held_bytes_ += size_bytes;
  budget_->Count(this);
  if (budget_->in_turn_ == this) {
    budget_->turn_bytes_ -= std::min(budget_->turn_bytes_, size_bytes);
  }
}

uint64_t LinkBudget::RoomOf(Member* member) {
  if (member->waits_) return 0;
  if (MayFinish(*member)) return member->begun_bytes_;
  const bool in_turn = in_turn_ == member && turn_bytes_ > 0;
  if (in_turn || waiting_.empty()) {
    // In turns the kernel was asked just before.
    const bool may_ask = in_turn_ == nullptr && executor_->Now() - refreshed_ >= kLeastPause;
    if (may_ask && IsFull(*member)) Refresh();
    if (!IsFull(*member)) {
      const uint64_t room = std::min(limit_bytes_ - held_bytes_, Share() - member->held_bytes_);
      if (in_turn) return std::min(room, turn_bytes_);
      if (in_turn_ == nullptr) samples_ = false;  // the link may be idle
      return room;
    }
  }
  member->waits_ = true;
  Count(member);
  waiting_.push_back(member);
  AwaitRoom();
  return 0;
}

// The most bytes that a connection may have: all of the limit if no other connection has something
// to send.
uint64_t LinkBudget::Share() const {
  return limit_bytes_ / std::clamp<size_t>(active_members_, 1, kMostShares);
}

bool LinkBudget::MayFinish(const Member& member) const {
  const bool its_turn = in_turn_ == &member || waiting_.empty();
  return its_turn && member.begun_bytes_ > 0 && member.begun_bytes_ <= Share();
}

void LinkBudget::Count(Member* member) {
  const bool active = !member->stalled_ && (member->held_bytes_ > 0 || member->waits_);
  if (std::exchange(member->active_, active) == active) return;
  active ? ++active_members_ : --active_members_;
}

bool LinkBudget::IsFull(const Member& member) const {
  return held_bytes_ + kLeastRoom > limit_bytes_ || member.held_bytes_ + kLeastRoom > Share();
}

void LinkBudget::Refresh() {
  const bs::TimePoint now = executor_->Now();
  refreshed_ = now;
  held_bytes_ = 0;
  uint64_t acknowledged_bytes = 0;
  for (Member* const member : members_) {
    if (member->held_bytes_ == 0) continue;
    const uint64_t held_bytes = std::min(member->held_bytes_, kernel_.held_bytes(member->fd_));
    const uint64_t gone = member->held_bytes_ - held_bytes;
    acknowledged_bytes += gone;
    member->held_bytes_ = held_bytes;
    member->marked_bytes_ -= std::min(member->marked_bytes_, gone);
    if (member->marked_bytes_ == 0) {
      member->marked_ = now;
      member->marked_bytes_ = held_bytes;
    }
    member->stalled_ = held_bytes > 0 && now - member->marked_ >= kStalled + round_trip_;
    if (!member->stalled_) held_bytes_ += held_bytes;
    Count(member);
  }
  idle_ = acknowledged_bytes == 0;
  acknowledged_bytes_ += acknowledged_bytes;
  if (!samples_) {
    acknowledged_bytes_ = 0;
    sample_begin_ = now;
    samples_ = true;
  } else if (now - sample_begin_ >= kSample) {
    Measure(now);
  }
}

void LinkBudget::Measure(bs::TimePoint now) {
  const double rate = static_cast<double>(std::exchange(acknowledged_bytes_, 0)) /
                      Seconds(now - std::exchange(sample_begin_, now));
  if (now - epoch_ >= kEpoch) {
    previous_ = std::exchange(best_, 0);
    epoch_ = now;
  }
  best_ = std::max(best_, rate);
  rate_ = std::max(best_, previous_);
  round_trip_ = {};
  for (const Member* const member : members_) {
    if (member->held_bytes_ == 0) continue;
    round_trip_ = std::max(round_trip_, kernel_.round_trip(member->fd_));
  }
  round_trip_ = std::min(round_trip_, kMostRoundTrip);
  const double most = rate_ * Seconds(ahead_ + round_trip_);
  limit_bytes_ = std::max(kLeastBytes, static_cast<uint64_t>(std::min(most, kMostLimit)));
}

void LinkBudget::AwaitRoom() {
  if (timer_ != 0) return;
  // A quarter of the limit is worth a look at the kernel.  Where nothing moves, looks become rare.
  const double seconds = rate_ > 0 ? static_cast<double>(limit_bytes_) / 4 / rate_ : 0;
  const auto quarter =
      std::chrono::duration_cast<bs::Duration>(std::chrono::duration<double>(seconds));
  pause_ = std::clamp(idle_ ? 2 * pause_ : quarter, kLeastPause, kMostPause);
  timer_ = executor_->PostAt(executor_->Now() + pause_, [this] {
    timer_ = 0;
    GiveTurns();
  });
}

void LinkBudget::GiveTurns() {
  Refresh();
  while (GiveEachATurn()) {
  }
  if (!waiting_.empty()) AwaitRoom();
  // Else the link is not all that they wait for, and tells nothing of its rate.
  const bool wanted = std::any_of(waiting_.begin(), waiting_.end(),
                                  [](const Member* member) { return !member->stalled_; });
  if (!wanted) samples_ = false;
}

bool LinkBudget::GiveEachATurn() {
  bool sent = false;
  for (size_t count = waiting_.size(); count > 0 && !waiting_.empty(); --count) {
    if (held_bytes_ >= limit_bytes_) return false;
    Member* const member = waiting_.front();
    waiting_.pop_front();
    if (IsFull(*member)) {
      waiting_.push_back(member);
      continue;
    }
    const uint64_t before = held_bytes_;
    member->waits_ = false;
    Count(member);
    in_turn_ = member;
    turn_bytes_ = kTurnBytes;
    member->resume_();
    in_turn_ = nullptr;
    sent = sent || held_bytes_ > before;
  }
  return sent;
}

}  // namespace ps
