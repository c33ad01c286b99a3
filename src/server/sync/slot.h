// Slot: one partition of one key on its server: its rounds, its sums, and the pulls that wait for
// them.
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
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "protocol/describe.h"
#include "server/memory/sum_buffer.h"
#include "server/memory/sum_ref.h"
#include "server/state/pending_calls.h"
#include "server/state/shard_state.h"
#include "server/sync/round.h"

namespace bs::server {

class Slot {
 public:
  // `shard` must outlive the slot.  `first`: the first round with this layout.
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
  // Refuses pending pulls and drops early contributions.
  void Fail(const Status& why);
  // Returns the bytes of memory for values.
  uint64_t kept_bytes() const;

 private:
  // A contribution, under the lowest rank of the workers that it stands for.
  struct Ready {
    int32_t rank;
    int32_t workers;  // number that it stands for
    ps::Frame payload;
  };
  // A contribution that came before its turn, as it was received.
  struct Early {
    int32_t workers;
    ps::Frame payload;
    MemoryRoom::Promise memory;  // for the sum, of the first contribution that needs it
  };
  using EarlyByRank = std::map<int32_t, Early>;
  struct Coded {
    Coding coding{};  // of the open round
    // Where sums travel coded, a round is summed here, and its codes are what outlives it.
    SumRef sum{};
    // The part of sums that codes could not express; empty where none is kept.
    std::vector<float> residual{};
    float ratio = 1;                  // its factor in the open round, as rank 0's push says
    std::array<Coding, 2> of_sums{};  // of buffers_; plain: that holds a sum
  };

  // `ranks`: the workers for which it stands, in order.
  Status CheckPush(const protocol::Call& call, std::span<const int32_t> ranks) const;
  Status CheckHost(const protocol::Call& call, std::span<const int32_t> ranks) const;
  // That of all contributions to the open round.
  Coding coding() const { return coded_ ? coded_->coding : Coding{}; }
  // That of the sum in a buffer.
  Coding CodingOf(uint32_t buffer) const { return coded_ ? coded_->of_sums[buffer] : Coding{}; }
  Status CheckCoding(const protocol::Call& call) const;
  Status CheckNext(const protocol::Call& call, std::span<const int32_t> ranks) const;
  Status CheckPull(const protocol::Call& call) const;
  // For the sum of the current round, if it has no memory yet and none is promised to it.  `rank`:
  // the lowest of the workers for which the push stands.
  Result<MemoryRoom::Promise> AskForMemory(const protocol::Call& call, int32_t rank) const;
  // Why the current round can not complete any more; null if it can.
  const Status* Blocked() const;
  bool has_shape() const { return rounds_.begun(); }
  bool has_early() const { return early_ && !early_->empty(); }
  // `ranks`: the workers for which it stands; `memory`: the promise for the sum.
  void Take(protocol::Call& call, std::span<const int32_t> ranks, MemoryRoom::Promise memory);
  bool ComesEarly(int32_t rank, const Coding& coding, uint64_t payload_bytes) const;
  // For the first contribution of the open round, whose payload stays in `call` unless its memory
  // becomes that of the sum.
  void BeginSum(protocol::Call* call);
  // Makes `buffer` memory of `size_bytes` that no answer shows.
  void Renew(SumRef* buffer, uint64_t size_bytes);
  // Makes room for the part of sums that codes cannot express, if that coding keeps it.
  void RenewResidual(const Coding& of_sum);
  // The memory of the open round's sum.
  std::byte* SumMemory();
  // The sum of `round` is complete: codes it if it travels so.
  void EncodeSum(Round round);
  // An empty payload is in the sum already.
  void Add(Ready contribution);
  // Sums `ready` in its order.
  void Sum(const std::vector<Ready>& ready);
  void SumPlain(const std::vector<Ready>& ready, std::byte* sum) const;
  void SumCodes(const std::vector<Ready>& ready, std::byte* sum) const;
  void AnswerPending();
  void Answer(const protocol::Call& call);
  void Refuse(const protocol::Call& call, const Status& why);
  void AddPending(protocol::Call& call);
  std::string Wanted() const;

  // A server keeps one slot for each partition, so members that few slots need are made when
  // needed, and then stay: a slot with an early contribution once is likely to have another in
  // every round.
  ShardState* const shard_;
  const SlotId id_;
  RoundState rounds_;
  protocol::PartitionShape shape_;                    // fixed when has_shape()
  SumRef buffers_[2];                                 // owners: this slot and the answers in flight
  std::unique_ptr<Coded> coded_;                      // null: no coding was named yet
  int32_t coding_rank_ = 0;                           // of the worker that set it
  int32_t next_rank_ = 0;                             // all below it are in the open round's sum
  PendingCalls pending_;                              // pulls of round rounds_.current()
  TimePoint first_push_;                              // of the open round; of Now()
  TimePoint last_push_;                               // as above, so far
  std::unique_ptr<EarlyByRank> early_;                // null: no contribution was early yet
  std::unique_ptr<std::array<std::string, 2>> next_;  // as rank 0's pushes to these rounds said
};

}  // namespace bs::server
