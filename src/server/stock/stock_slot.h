// StockSlot: one key of stock MXNet workers on its server: its value, and the round that is open.
//
// It behaves as a stock server, but a round counts workers and not requests.  A worker that pushes
// again before the round is complete opens the next round with that push, and its pulls see its own
// pushes.  Without kSyncMode each push is a round of its own.
//
// Confined to its shard's executor; never blocks.  Every request is answered through the shard's
// `send`, now or when its round is complete, or fails the job.  May throw std::bad_alloc; then the
// round may never complete, and the shard fails the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "server/optimizer/hosted_updates.h"
#include "server/state/shard_state.h"
#include "server/stock/stock_request.h"
#include "server/stock/stock_shape.h"
#include "server/stock/stock_value.h"
#include "server/stock/waiting_call.h"

namespace bs::server {

// The state that the slots of one shard share.
struct StockState : ShardBase {
  uint64_t max_queued_bytes = 0;              // requests that are in no round yet
  std::function<void(const Status&)> fail{};  // ends the job
  Logger log{};
  Duration straggler_timeout = std::chrono::minutes(30);

  // Commands of the workers.
  bool synchronous = false;
  bool wide = false;                     // float16 is summed in float32
  float threshold = 0;                   // of two-bit codes; 0: none was set
  HostedUpdates::Optimizer optimizer{};  // null: sums become values

  uint64_t queued_bytes = 0;  // of waiting requests; WaitingCall alone changes it
  std::vector<float> scratch{};
};

class StockSlot {
 public:
  // `state` must outlive the slot.
  StockSlot(StockState* state, uint64_t key);
  StockSlot(const StockSlot&) = delete;
  StockSlot& operator=(const StockSlot&) = delete;
  ~StockSlot() = default;

  // REQUIRES: the worker's rank is in the job.
  void Handle(StockCall call);
  // The worker was lost, and another takes its place.  Its push in the open round, or in an update
  // under way, counts and gets no answer; its pending calls are forgotten.
  void OnWorkerVacant(int32_t worker_id);
  // When requests will have waited for straggler_timeout; null if none waits.
  std::optional<TimePoint> due() const;
  // Why the job fails then.  REQUIRES: due() has a value.
  Status Overdue() const;

 private:
  // A worker that pushes, and its requests that wait, in the order of coming.
  struct Party {
    std::deque<WaitingCall> calls{};  // the first is a push if it is `in` the open round
    bool in = false;
    bool early = false;  // not in the sum yet
    bool lost = false;   // the worker of the first call
  };

  Status Check(const StockCall& call) const;
  // False, and the job has failed, if a further request may not wait beside the `waiting` requests.
  // `owners` names their workers.
  bool MayWait(const StockCall& call, size_t waiting, const char* owners);
  bool MayWaitIn(const Party& party, const StockCall& call) {
    return MayWait(call, party.calls.size(), "this worker");
  }
  WaitingCall Counted(StockCall call) { return {&state_->queued_bytes, std::move(call)}; }
  void Initialise(StockCall call);
  // For a value of this shape and its sums.
  Result<MemoryRoom::Promise> AskForMemory(const StockCall& call, const StockShape& shape) const;
  // Asks for the memory that an update is the first to need.
  Result<MemoryRoom::Promise> AskForUpdate() const;
  // True if a worker that took the first worker's place sends the initial value again.
  bool IsInitialAgain(const StockCall& call);
  void WaitForInit(StockCall call);
  void Push(StockCall call);
  Party* FindParty(const StockParty& who);
  // Everything that can happen now does.
  void Advance();
  bool waits() const { return !early_.empty() || num_in_ > 0 || updating_; }
  std::string WaitsFor() const;
  // Answers pulls that wait for nothing, and takes pushes whose turn has come.
  void AdvanceParties();
  bool TakeTurn();
  void Contribute(Party* party);
  void Add(Party* party);
  void AddHeld();
  void Complete();
  void EndUpdate(const Status& status);
  void Finish();
  void Answer(StockCall* call) { state_->send(value_->Answer(call)); }

  StockState* const state_;
  const uint64_t key_;
  StockShape shape_;
  std::unique_ptr<StockValue> value_;    // once initialised
  StockGradient gradient_;               // the open round's sum
  MemoryRoom::Promise sum_memory_;       // until it is used
  MemoryRoom::Promise update_memory_;    // while an update is under way
  std::vector<WaitingCall> early_;       // pulls that came before the first push
  std::map<StockParty, Party> parties_;  // their order is that of summing
  int32_t num_in_ = 0;
  // Ranks that were lost, kept until the end.  A newcomer that is a push ahead or behind stays so
  // in every later round; a round then waits for it when the other workers have no more pushes to
  // come.
  std::set<int32_t> replaced_;
  bool initial_again_ = false;    // the next push of worker 0 is the initial value
  std::deque<StockParty> turns_;  // whose pushes wait, without kSyncMode
  bool updating_ = false;         // the round is complete, its update is under way
  // The time when the latest wait began: for the first push, for a round, or for an update.  Every
  // waiting request waits for one of these.
  TimePoint since_{};
};

}  // namespace bs::server
