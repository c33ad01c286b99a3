// AsyncSlot: one partition of an asynchronous key: weights that every push updates as it comes.
//
// Each worker counts its own pushes 1, 2, ...; number r of a worker is applied once, after its
// number r-1.  The answer to a pull that carries r has the weights as they are.  It comes once the
// worker's push r is in them.  If staleness is bounded by s, it also waits until every other worker
// that is still there has pushed r-s times.
//
// A coded push counts as the gradient that its codes stand for; workers need not agree on a coding.
//
// If the optimizer in force is not native, or the key needs it, the process that hosts the server
// makes the updates (server_updater.h).  It makes one update at a time, on a copy; meanwhile pulls
// get the earlier weights.
//
// Confined to its shard's executor; never blocks.  Every request is answered through the shard's
// `send`, now or when its condition holds.  May throw std::bad_alloc; then nothing was counted and
// the shard refuses the request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "protocol/describe.h"
#include "server/memory/sum_buffer.h"
#include "server/optimizer/optimizer.h"
#include "server/state/pending_calls.h"
#include "server/state/shard_state.h"

namespace bs::server {

class AsyncSlot {
 public:
  // `shard` must outlive the slot.
  AsyncSlot(ShardState* shard, SlotId id);
  AsyncSlot(const AsyncSlot&) = delete;
  AsyncSlot& operator=(const AsyncSlot&) = delete;
  ~AsyncSlot() = default;

  // The same as in Slot: the payload may be moved out of `call`, the rest stays.
  void Push(protocol::Call& call);
  void Pull(protocol::Call& call);
  // `rank` is in shard->gone now; no pull waits for its pushes any more.
  void OnWorkerGone(int32_t rank);
  // `rank` was lost, and another worker takes its place.  The new worker counts its pushes from 1,
  // and no pull waits for it before its first push.
  void OnWorkerVacant(int32_t rank);
  // Refuses pending calls.
  void Fail(const Status& why);

 private:
  // An update that the hosting process makes.
  struct Hosted {
    protocol::Call call;
    std::string about;
    std::shared_ptr<SumBuffer> before;
    std::shared_ptr<SumBuffer> after;
    uint64_t incarnation = 0;  // of its worker's place
  };
  // The slot's state of a worker.
  struct Party {
    Round pushes = 0;          // of this incarnation, that are in the weights
    uint64_t answered = 0;     // the sequence of its latest answered pull
    uint64_t incarnation = 0;  // how often its place has become free
    Round ahead = 0;           // pushes of other workers at its first push in a later incarnation
    std::weak_ptr<SumBuffer> shown{};  // the memory of its latest answer
  };

  bool initialised() const { return weights_ != nullptr; }
  Party& party_of(const protocol::Call& call) {
    return parties_[static_cast<size_t>(call.worker_rank)];
  }
  // A push of that worker is in the weights.
  void Count(const protocol::Call& call);
  // True if other workers wait for pushes of this worker, which happens where staleness is bounded.
  bool IsAwaited(size_t rank) const;
  Status CheckPush(const protocol::Call& call) const;
  Status CheckPull(const protocol::Call& call);
  // Asks for the memory that `call` is the first to need.
  Result<MemoryRoom::Promise> AskForMemory(const protocol::Call& call) const;
  void Initialise(const protocol::Call& call);
  // Why the server cannot update with `call`.
  Status CheckUpdate(const protocol::Call& call) const;
  bool IsHosted() const { return needs_host_ || !shard_->optimizer.native; }
  Status CheckHosted(const protocol::Call& call) const;
  void BeginHosted(protocol::Call& call);
  void EndHosted(const Hosted& job, const Status& status);
  void Queue(protocol::Call& call);
  Rates RatesOf(const protocol::Call& call) const;
  void Update(const protocol::Call& call);
  // Makes spare_ memory that no answer in flight shows.
  void PrepareSpare();
  // The same for weights_, with its content.
  void PrepareWeights();
  // Ranks that a pull behind `count` own pushes must wait for.
  std::vector<int32_t> Behind(Round count) const;
  bool Ready(const protocol::Call& call);
  void AddPending(protocol::Call& call);
  std::string WhomFor(const protocol::Call& call);
  void AnswerReady();
  void Answer(const protocol::Call& call);
  void Refuse(const protocol::Call& call, const Status& why);

  ShardState* const shard_;
  const SlotId id_;
  protocol::PartitionShape shape_;        // once initialised
  std::shared_ptr<SumBuffer> weights_;    // owners, here and below: this and the answers in flight
  std::shared_ptr<SumBuffer> spare_;      // of an earlier moment; may still be leaving
  std::optional<OptimizerState> state_;   // once updated natively
  std::string about_;                     // rank 0's description of the key, if all of it is here
  bool needs_host_ = false;               // with any optimizer
  std::optional<int32_t> updating_rank_;  // whose gradient is with the hosting process
  PendingCalls queue_;                    // pushes behind it
  std::vector<Party> parties_;            // by rank
  PendingCalls pending_;
};

}  // namespace bs::server
