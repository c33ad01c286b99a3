// Worker::Impl: the keys, and the order of the operations of each.
//
// Confined to the worker's executor, but for Post.  worker.h lists the errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"
#include "core/core.h"
#include "protocol/exchange_terms.h"
#include "protocol/tensor.h"
#include "trace/critical_tensor.h"
#include "trace/steps.h"
#include "worker/broadcast.h"
#include "worker/broadcast_from.h"
#include "worker/exchange_task.h"
#include "worker/fetch.h"
#include "worker/measured_order.h"
#include "worker/operation.h"
#include "worker/operation_context.h"
#include "worker/push_pull_task.h"
#include "worker/residual.h"
#include "worker/worker.h"

namespace bs {
namespace worker {

// A key in use.  The operation under way is out of `waiting` and in `broadcast` or `task`.
struct KeyState {
  std::unique_ptr<const protocol::Tensor> tensor;  // once declared
  Round next_round = 1;
  uint64_t decision = 0;                            // rank 0's latest that was announced with it
  std::unique_ptr<const protocol::Tensor> retired;  // its earlier layout, until rank 0 releases it
  bool new_layout = false;                          // in the next round
  Residual residual;              // of the tensor; empty before a coded round that needs it
  bool residual_of_host = false;  // of the host's sums, in the partitions that this worker adds up
  PushRates rates;                // of the latest round that named a coding
  bool servers_keep = false;      // a residual of its coded sums
  bool cut_for_codes = false;     // so its layout stays, whatever is tuned
  std::list<Operation> waiting;   // mostly empty, which costs a deque 600 bytes
  std::unique_ptr<Broadcast> broadcast;
  std::unique_ptr<PushPullTask> task;
  std::unique_ptr<Fetch> fetch;
  uint64_t turn = 0;  // how often it was given back and taken again, since it was declared
  bool asks = false;  // it is being given back, or taken again
  // A call whose priority is `callers` gets `measured` instead.
  Priority callers = 0;
  Priority measured = 0;

  Priority Counting(Priority given) const { return given == callers ? measured : given; }
  // True if the key is declared once everything that waits has begun, unless that is refused.
  bool WillBeDeclared() const;
  bool busy() const { return broadcast || task || fetch || asks; }
  // True if this worker has given it back.
  bool rests() const { return turn % 2 == 1; }
};

// An exchange under way.
struct ExchangeState {
  std::unique_ptr<ExchangeTask> task;
  TimerId deadline = 0;
};

}  // namespace worker

// Invariants:
//  1. A key has one operation under way at a time: a round begins when this worker has the sum of
//     the round before.  The server's two buffers rely on that:
//     docs/design/decisions/0002-two-buffers-and-a-round-number.md.
//  2. The layout of a key changes between two of its rounds, the same two on every worker.  The old
//     layout is in use until every worker has pushed the round behind the change: when rank 0 has
//     that round's sum, it tells the back end.
//  3. A key that this worker has given back is taken again before its next operation begins.
//  4. After a failure nothing begins.  An operation under way ends when its memory is out of use;
//     waiting operations end behind it, in order.
class Worker::Impl {
 public:
  Impl(const WorkerOptions& options, Executor* executor, backend::Backend* backend,
       std::function<void(Status)> on_failure, const Logger& log, const protocol::Rules& rules);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { BS_CHECK(num_open_ == 0); }

  Executor* executor() const { return executor_; }
  // Thread-safe.
  void Post(Key key, worker::Operation operation) {
    executor_->Post([this, key, operation = std::move(operation)]() mutable {
      Enqueue(key, std::move(operation));
    });
  }
  void BroadcastFrom(Key key, int32_t root, const std::shared_ptr<worker::BroadcastFrom>& call,
                     Done done);
  void SetOptimizer(backend::OptimizerText optimizer, Done done);
  void BeginExchange(ExchangeCall call);
  void QuitExchange(Key key, const Status& why);
  void ReprioritiseExchange(Key key, Priority priority);
  // Quits an exchange at its deadline.  The worker fails if the server does not answer to that.
  void ExpireExchange(Key key, const Status& why);
  void SetPartitionAndCredit(uint64_t partition_bytes, uint64_t credit_bytes) {
    BS_CHECK(partition_bytes >= protocol::kAlignBytes);
    partition_bytes_ = partition_bytes;
    credit_bytes_ = credit_bytes;
    core_.SetCredit(credit_bytes);
  }
  Status Retune(uint64_t partition_bytes, uint64_t credit_bytes);
  // Rank 0's decision, in force from the next rounds on; on another rank the latest it has
  // received.
  backend::PartitionAndCredit partition_and_credit() const {
    return {partition_bytes_, options_.view->own.rank == 0 ? credit_bytes_ : core_.credit_bytes()};
  }
  void Fail(const Status& status);
  void Close(UniqueFunction<void()> closed);
  void Measure(Metrics* metrics) const;
  const Core& core() const { return core_; }
  const trace::Steps& steps() const { return steps_; }

 private:
  // Fails the worker because an operation failed for good.  Returns the worker's failure.
  Status FailForGood(const Status& status);
  void Enqueue(Key key, worker::Operation operation);
  void NoteReady(Key key, const worker::Operation& operation);
  // Begins the next operation of a key that is not busy.
  void Advance(Key key, worker::KeyState* state);
  Status Check(Key key, const worker::KeyState& state, const worker::Operation& operation) const;
  void Refuse(const worker::Operation& operation, const Status& why);
  void BeginBroadcast(Key key, worker::KeyState* state, worker::Operation operation);
  // The key was declared with the layout of `tensor`.
  void Adopt(worker::KeyState* state, protocol::Tensor tensor) const;
  void BeginPushPull(Key key, worker::KeyState* state, worker::Operation operation);
  // Rank 0 takes the partition and credit that suit the network, once that is measured.
  void Fit();
  // A worker of exchanges alone hears of no decision: its credit suits what it has measured itself.
  void FitExchanges();
  // Their partitions may be larger than the network suits: a partition and the next have room.
  uint64_t CreditOfExchanges(uint64_t credit_bytes) const {
    return std::max(credit_bytes, 2 * options_.exchange_partition_bytes);
  }
  // Rank 0's pushes announce the decision to every worker from now on.
  void Decide(const backend::PartitionAndCredit& sizes);
  // Makes the coding of an operation that of later rounds, if the key has to be cut for it first.
  void Prepare(const worker::KeyState& state, worker::Operation* operation) const;
  backend::Coder CoderOf(const worker::Operation& operation, worker::KeyState* state);
  // The factor of the key's residual in that round.
  float RatioOf(const worker::Operation& operation, worker::KeyState* state);
  // This worker's residual of the key goes, if it has any, and a line tells that.
  void DropResidual(worker::KeyState* state, const char* why) const;
  // Tells that the servers' residual of the key goes, if they keep it.
  void TellLostResidual(const worker::KeyState& state, const char* why) const;
  // Returns the announcement of a new layout in rank 0's next push of the key; empty: none.
  // `coding`: of that round.
  std::string Announce(worker::KeyState* state, const Coding& coding);
  // A push-pull is over; `next_layout` came with its sum.
  void EndPushPull(Key key, worker::KeyState* state, const std::string& next_layout);
  void ChangeLayout(worker::KeyState* state, const std::string& next_layout);
  void ReleaseRetired(worker::KeyState* state);
  void BeginFetch(Key key, worker::KeyState* state, worker::Operation operation);
  void BeginGiveBack(Key key, worker::KeyState* state, worker::Operation operation);
  // All workers have given the key back: tells the servers of its partitions.
  void ReleaseAll(const worker::KeyState& state);
  // Forgets a key that was given back for good, unless an operation came behind that.
  void DropLater(Key key);
  // Takes a key that rests again, for its next operation.
  void TakeAgain(Key key, worker::KeyState* state);
  void DeclareAfresh(Key key, worker::KeyState* state);
  void EndOperation(Key key, worker::KeyState* state);
  uint64_t PartitionBytes() const {
    return partition_bytes_ - partition_bytes_ % protocol::kAlignBytes;
  }
  // Those of keys that are cut for `coding`.  REQUIRES: it cuts keys.
  uint64_t PartitionBytes(const Coding& coding) const {
    return context_.codecs->PartitionBytes(coding, PartitionBytes());
  }
  // True if a key whose rounds are so coded, at once or later, is cut for it.
  bool CutsKeys(const Coding& coding) const {
    return cuts_into_units_ && coding.codec != 0 && context_.codecs->Get(coding).cuts_keys;
  }
  // The new partitions take the place of `replaced`.
  protocol::Tensor PartitionAndPlace(protocol::Tensor tensor, uint64_t partition_bytes,
                                     std::span<const Partition> replaced = {});
  // Why this worker cannot begin the exchange.
  Status CheckExchange(const ExchangeCall& call, const protocol::ExchangeTerms& terms) const;
  uint32_t HomeOf(const ExchangeCall& call) const;
  void EndExchange(Key key);
  void OperationEnded();

  const WorkerOptions options_;
  const bool changes_behind_round_;  // protocol::Rules::layouts_change_behind_their_round
  const bool cuts_into_units_;       // protocol::Rules::coded_keys_are_cut_into_units
  const bool goes_home_;             // protocol::Rules::exchanges_go_to_their_home
  uint64_t partition_bytes_ = options_.partition_bytes;
  Executor* const executor_;
  const std::function<void(Status)> on_failure_;
  const Logger log_;
  backend::Backend* const backend_;
  Core core_;
  trace::Steps steps_;
  trace::CriticalTensor critical_;
  const worker::OperationContext context_;
  bool fits_network_ = options_.view->own.rank == 0;  // until rank 0 has decided
  bool fits_exchanges_ = true;                        // until a decision, or this worker's own
  Status failure_;
  uint64_t num_optimizers_ = 0;  // calls of SetOptimizer
  uint64_t credit_bytes_ = options_.credit_bytes;
  uint64_t decision_ = 0;                 // of rank 0: how many it has taken
  uint64_t credit_announced_ = 0;         // the latest whose credit some key has announced
  uint64_t credit_in_force_ = 0;          // the latest whose credit is in force here
  bool told_of_ratio_ = false;            // that learning rates change too much for residuals
  bool told_of_empty_residuals_ = false;  // those of the lost worker whose place this worker took
  size_t num_open_ = 0;                   // operations whose callbacks have not all run
  std::vector<UniqueFunction<void()>> on_closed_;
  std::unique_ptr<worker::MeasuredOrder> order_;  // while there is something to learn
  TimePoint last_ready_{};
  std::map<Key, worker::ExchangeState> exchanges_;  // their tasks refer to the above
  std::map<Key, worker::KeyState> keys_;            // last: its tasks refer to the above
};

}  // namespace bs
