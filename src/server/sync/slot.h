// Slot: one partition of one key on its server: its rounds, its sums, and who waits for them.
//
// Confined to its shard's executor.  Every request is answered through the shard's `send`, now or
// when the round completes; never blocks.  May throw std::bad_alloc; then nothing wrong is in a sum
// (the round may never complete) and the shard refuses the request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "protocol/call.h"
#include "protocol/describe.h"
#include "server/memory/sum_buffer.h"
#include "server/memory/sum_ref.h"
#include "server/state/parked.h"
#include "server/state/shard_state.h"
#include "server/sync/round.h"

namespace bs::server {

class Slot {
 public:
  // `shard` must outlive the slot.  `first`: the round in which the key is first cut so.
  Slot(ShardState* shard, SlotId id, Round first = 0);
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() = default;

  // A push, or a push and pull in one.  The payload is moved out of `call`; the rest stays, for a
  // refusal after an exception.
  void Push(protocol::Call& call);
  void Pull(protocol::Call& call);
  // `rank` is in shard->gone now.
  void OnWorkerGone(int32_t rank);
  // Refuses what is parked and gives back what is held.
  void Fail(const Status& why);
  // Returns the bytes of memory for values.
  uint64_t kept_bytes() const;

 private:
  // A contribution that came early, as it was received.
  struct Held {
    ps::Frame payload;
    MemoryRoom::Promise memory;  // for the sum, of the first one that needs it
  };
  using HeldByRank = std::map<int32_t, Held>;

  Status CheckPush(const protocol::Call& call) const;
  // That of all contributions to the open round.
  Coding coding() const { return coding_ ? *coding_ : Coding{}; }
  Status CheckCoding(const protocol::Call& call) const;
  Status CheckNext(const protocol::Call& call) const;
  Status CheckPull(const protocol::Call& call) const;
  // For the sum of the current round, if it has no memory yet and none is promised to it.
  Result<MemoryRoom::Promise> AskForMemory(const protocol::Call& call) const;
  // Why the current round can not complete any more; null if it can.
  const Status* Blocked() const;
  bool has_shape() const { return rounds_.begun(); }
  bool holds() const { return held_ && !held_->empty(); }
  // `memory`: what was promised for the sum.
  void Take(protocol::Call& call, MemoryRoom::Promise memory);
  bool MustHold(int32_t rank, uint64_t payload_bytes) const;
  void PrepareBuffer();
  void Add(int32_t rank, ps::Frame payload);
  // Sums `ready` in its order.
  void Sum(const std::vector<std::pair<int32_t, ps::Frame>>& ready);
  void SumPlain(const std::vector<std::pair<int32_t, ps::Frame>>& ready, std::byte* sum) const;
  void SumCodes(const std::vector<std::pair<int32_t, ps::Frame>>& ready, std::byte* sum) const;
  void AnswerParked();
  // Not the time if nobody wants to know.
  TimePoint Now() const {
    return shard_->on_round || shard_->timed ? shard_->executor->Now() : TimePoint();
  }
  void Answer(const protocol::Call& call);
  void Refuse(const protocol::Call& call, const Status& why);
  void Park(protocol::Call& call);
  std::string Wanted() const;

  // A server keeps one slot for each partition, so what few need is made when it is needed, and
  // then stays: a slot that held a contribution once is likely to hold one in every round.
  ShardState* const shard_;
  const SlotId id_;
  RoundState rounds_;
  PartShape shape_;                                   // fixed when has_shape()
  SumRef buffers_[2];                                 // owners: this slot and the answers in flight
  std::unique_ptr<Coding> coding_;                    // of the open round; null: plain
  int32_t coding_rank_ = 0;                           // who said so first
  int32_t next_rank_ = 0;                             // all below it are in the open round's sum
  ParkedCalls parked_;                                // pulls of round rounds_.current()
  TimePoint first_push_;                              // of the open round; of Now()
  TimePoint last_push_;                               // as above, so far
  std::unique_ptr<HeldByRank> held_;                  // null: nothing was held yet
  std::unique_ptr<std::array<std::string, 2>> next_;  // as rank 0's pushes to those rounds said
};

}  // namespace bs::server
