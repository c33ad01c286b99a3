// RoundState: the workers that have contributed to each round of a partition, and the sums that may
// be read.
//
// Pure rules, no bytes.  Round 0 is rank 0's initial value and is complete with that one
// contribution; rounds 1.. each need one contribution of every worker.  A contribution may stand
// for several workers: all of a host.
//
// Two sums are kept, in buffers round % 2.  A worker pushes round r+1 only after it has round r's
// sum, so when round r+2 begins every worker has r's
// (docs/design/decisions/0002-two-buffers-and-a-round-number.md).
//
// A partition of a new layout begins with the first round of that layout.
//
// Not thread-safe: confined to its shard.  Never fails; a fault of a worker is a verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/types.h"
#include "job/view.h"

namespace bs::server {

enum class PushVerdict {
  kTake,       // count it; call Contributed when its bytes are in the sum
  kDuplicate,  // taken before: acknowledge again, do not sum
  kRefuse,     // no correct worker sends this (round not open, rank out of range)
};
enum class PullVerdict {
  kReady,   // the sum is in buffer round % 2
  kWait,    // park until the round completes; it is round current()
  kRefuse,  // the round's buffer has been reused, or no correct worker asks for this round yet
};

// Ranks of workers.  Up to 64 of them need no memory besides, in which a vector would cost each
// partition 70 bytes.
class RankSet {
 public:
  // May throw std::bad_alloc for more.  `view` outlives the set.
  explicit RankSet(const job::View* view);
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;
  ~RankSet();

  const job::View& view() const { return *view_; }
  // REQUIRES: the view has a worker of that rank, here and below.
  bool has(int32_t rank) const { return (word(rank) & Bit(rank)) != 0; }
  void Add(int32_t rank);
  void Clear();

 private:
  static constexpr size_t kBits = 64;
  static uint64_t Bit(int32_t rank) { return uint64_t{1} << (static_cast<size_t>(rank) % kBits); }
  bool has_few() const { return view_->workers.size() <= kBits; }
  size_t num_words() const { return (view_->workers.size() + kBits - 1) / kBits; }
  uint64_t word(int32_t rank) const {
    return has_few() ? few_ : more_[static_cast<size_t>(rank) / kBits];
  }

  union {
    uint64_t few_ = 0;
    uint64_t* more_;  // owned; unless has_few()
  };
  const job::View* const view_;
};

class RoundState {
 public:
  // `num_buffers` is 2; a test passes 1 to show that it must be: with one buffer every finished
  // round is "ready", whatever the buffer holds by now.  REQUIRES: `view`, which outlives this, has
  // a worker; num_buffers is 1 or 2.  `first`: rounds before it are another partition's.
  explicit RoundState(const job::View* view, uint32_t num_buffers = 2, Round first = 0);

  // Returns the verdict of Push, and counts nothing: for callers that must first get memory.
  PushVerdict Judge(int32_t rank, Round round) const;
  // The same for a contribution that stands for all of `ranks`.  REQUIRES: there is a rank, here
  // and below.
  PushVerdict Judge(std::span<const int32_t> ranks, Round round) const;
  // kTake counts the contribution and opens the round if it is its first.
  PushVerdict Push(int32_t rank, Round round) { return Push(std::span(&rank, 1), round); }
  PushVerdict Push(std::span<const int32_t> ranks, Round round);
  PullVerdict Pull(Round round) const;
  // The bytes of `rank` are in the sum of the open round.  Returns true when that completed the
  // round.  REQUIRES: Push said kTake for it in this round; called once for each.  `workers`: for
  // how many the contribution stands, with `rank`.
  bool Contributed(int32_t rank, int32_t workers = 1);

  bool open() const { return open_; }  // a round has begun and is not complete
  // Some contribution is in the sum of the open round.
  bool has_sum() const { return num_contributed_ > 0; }
  bool begun() const { return open_ || current_ > first_; }
  Round current() const { return current_; }  // the open round, or the next to open
  uint32_t buffer_of(Round round) const { return static_cast<uint32_t>(round % num_buffers_); }
  // Ranks the open (or next) round still needs, for people: "worker 1" or "workers 1, 3".
  std::string Missing() const;
  bool has(int32_t rank) const;  // its contribution to the current round was taken
  bool needs(
      int32_t rank) const;  // the current round can not complete without it, and it is missing

 private:
  bool counts(int32_t rank) const;  // belongs to the current round, there or missing

  int32_t num_workers() const { return taken_.view().num_workers(); }

  // In this order no bytes lie between them: a server keeps a RoundState for each partition.
  const Round first_;
  Round current_ = first_;
  RankSet taken_;                // for the current round
  int32_t num_contributed_ = 0;  // workers
  const uint8_t num_buffers_;
  bool open_ = false;
};

}  // namespace bs::server
