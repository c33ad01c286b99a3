// The rules of rounds: which pushes count, which are repeats, and which sums are still there.
#include "server/sync/round.h"

#include <algorithm>

#include "base/check.h"
#include "protocol/describe.h"

namespace bs::server {

RankSet::RankSet(const job::View* view) : view_(view) {
  if (!has_few()) more_ = new uint64_t[num_words()]{};
}

RankSet::~RankSet() {
  if (!has_few()) delete[] more_;
}

void RankSet::Add(int32_t rank) {
  (has_few() ? few_ : more_[static_cast<size_t>(rank) / kBits]) |= Bit(rank);
}

void RankSet::Clear() { std::fill_n(has_few() ? &few_ : more_, num_words(), 0); }

RoundState::RoundState(const job::View* view, uint32_t num_buffers, Round first)
    : first_(first), taken_(view), num_buffers_(static_cast<uint8_t>(num_buffers)) {
  BS_CHECK(view->num_workers() > 0);
  BS_CHECK(num_buffers == 1 || num_buffers == 2);
}

PushVerdict RoundState::Judge(int32_t rank, Round round) const {
  if (!taken_.view().has_worker(rank)) return PushVerdict::kRefuse;
  if (round < first_ || (round == 0 && rank != 0)) return PushVerdict::kRefuse;
  // Rounds complete only with all workers in them, so whatever is older was taken.
  if (round < current_) return PushVerdict::kDuplicate;
  // A worker has the sum of round r before it pushes r+1, so nothing correct is ever ahead.
  if (round > current_) return PushVerdict::kRefuse;
  return has(rank) ? PushVerdict::kDuplicate : PushVerdict::kTake;
}

PushVerdict RoundState::Judge(std::span<const int32_t> ranks, Round round) const {
  BS_CHECK(!ranks.empty());
  const PushVerdict verdict = Judge(ranks.front(), round);
  // No correct worker contributes alone to a round in which its host contributes for it.
  const auto differs = [&](int32_t rank) { return Judge(rank, round) != verdict; };
  return std::any_of(ranks.begin(), ranks.end(), differs) ? PushVerdict::kRefuse : verdict;
}

PushVerdict RoundState::Push(std::span<const int32_t> ranks, Round round) {
  const PushVerdict verdict = Judge(ranks, round);
  if (verdict == PushVerdict::kTake) {
    open_ = true;
    for (const int32_t rank : ranks) taken_.Add(rank);
  }
  return verdict;
}

PullVerdict RoundState::Pull(Round round) const {
  if (round < first_ || round > current_) return PullVerdict::kRefuse;
  if (round == current_) return PullVerdict::kWait;
  // The fault that a test wants to see: one buffer, which answers whatever it holds.
  if (num_buffers_ == 1) return PullVerdict::kReady;
  // An open round writes into the buffer of the round `num_buffers_` before it.
  const Round age = current_ - round;
  return age < num_buffers_ || (age == num_buffers_ && !open_) ? PullVerdict::kReady
                                                               : PullVerdict::kRefuse;
}

bool RoundState::Contributed(int32_t rank, int32_t workers) {
  BS_CHECK(open_ && has(rank) && workers > 0);
  num_contributed_ += workers;
  const int32_t wanted = current_ == 0 ? 1 : num_workers();
  BS_CHECK(num_contributed_ <= wanted);
  if (num_contributed_ < wanted) return false;
  ++current_;
  open_ = false;
  num_contributed_ = 0;
  taken_.Clear();
  return true;
}

std::string RoundState::Missing() const {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < num_workers(); ++rank) {
    if (needs(rank)) missing.push_back(rank);
  }
  return protocol::DescribeWorkers(missing);
}

bool RoundState::counts(int32_t rank) const {
  return rank >= 0 && rank < (current_ == 0 ? 1 : num_workers());
}

bool RoundState::has(int32_t rank) const { return counts(rank) && taken_.has(rank); }

bool RoundState::needs(int32_t rank) const { return counts(rank) && !has(rank); }

}  // namespace bs::server
