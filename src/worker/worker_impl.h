// Worker::Impl: the keys, and the order of the operations of each.
//
// Confined to the worker's executor, but for Post.  Errors are those of bytescheduler/worker.h.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/ps/broadcast.h"
#include "backend/ps/fetch.h"
#include "backend/ps/link_rate.h"
#include "backend/ps/measured_order.h"
#include "backend/ps/push_pull_task.h"
#include "backend/ps/requests.h"
#include "base/check.h"
#include "bytescheduler/core.h"
#include "bytescheduler/worker.h"
#include "protocol/placement.h"
#include "worker/operation.h"

namespace bs {
namespace worker {

// A key in use.  The operation under way is out of `waiting` and in `broadcast` or `task`.
struct KeyState {
  std::unique_ptr<const Tensor> tensor;  // once declared
  Round next_round = 1;
  uint64_t decision = 0;                  // of rank 0: the latest that was told to it
  std::unique_ptr<const Tensor> retired;  // rank 0's: how it was cut before, until released
  std::vector<float> residual;            // of the tensor; empty before its first coded round
  std::list<Operation> waiting;           // mostly empty, which costs a deque 600 bytes
  std::unique_ptr<Broadcast> broadcast;
  std::unique_ptr<PushPullTask> task;
  std::unique_ptr<Fetch> fetch;
  // Where the caller says the one, the other counts.
  Priority callers = 0;
  Priority measured = 0;

  Priority Counting(Priority given) const { return given == callers ? measured : given; }
  bool busy() const { return broadcast || task || fetch; }
};

}  // namespace worker

// Invariants:
//  1. Of a key one operation at a time is under way: a round begins when this worker has the sum of
//     the round before, which the server's two buffers rely on (design decision 2).
//  2. How a key is cut changes between two of its rounds, and every worker does it between the
//  same.
//     What was cut before is in use until each has pushed the round behind: when rank 0 has that
//     round's sum, it tells the servers.
//  3. After a failure nothing begins; what is under way ends when its memory is out of use, and
//     what waits ends behind it, in order.
class Worker::Impl {
 public:
  Impl(const WorkerOptions& options, Executor* executor, SendFn send,
       std::function<void(Status)> on_failure, const Logger& log);
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
  void SetOptimizer(worker::OptimizerText optimizer, Done done);
  void OnMessage(ps::Message message) { requests_.OnMessage(std::move(message)); }
  std::shared_ptr<ps::Landing> Place(int32_t peer, const ps::Meta& meta, uint64_t size_bytes) {
    return requests_.Place(peer, meta, size_bytes);
  }
  void SetPartitionAndCredit(uint64_t partition_bytes, uint64_t credit_bytes) {
    BS_CHECK(partition_bytes >= worker::kAlignBytes);
    partition_bytes_ = partition_bytes;
    credit_bytes_ = credit_bytes;
    core_.SetCredit(credit_bytes);
  }
  Status Retune(uint64_t partition_bytes, uint64_t credit_bytes);
  // As rank 0 has decided, in force from the next rounds on; of another rank as far as it knows.
  worker::Pieces pieces() const {
    return {partition_bytes_, options_.rank == 0 ? credit_bytes_ : core_.credit_bytes()};
  }
  void Fail(const Status& status);
  void Close(UniqueFunction<void()> closed);
  const worker::Link& link() const { return link_; }

 private:
  // An operation failed for good.  Returns the worker's failure.
  Status FailForGood(const Status& status);
  void Enqueue(Key key, worker::Operation operation);
  void NoteReady(Key key, const worker::Operation& operation);
  // Begins what may begin of a key that is not busy.
  void Advance(Key key, worker::KeyState* state);
  Status Check(Key key, const worker::KeyState& state, const worker::Operation& operation) const;
  void Refuse(const worker::Operation& operation, const Status& why);
  void BeginBroadcast(Key key, worker::KeyState* state, worker::Operation operation);
  // The key was declared, and is cut as `tensor` says.
  void Adopt(worker::KeyState* state, worker::Tensor tensor) const;
  void BeginPushPull(Key key, worker::KeyState* state, worker::Operation operation);
  // Rank 0's: takes the pieces that suit the link once that is known.
  void Fit();
  // Rank 0's: its pushes tell everyone from now on.
  void Decide(const worker::Pieces& pieces);
  // What rank 0's next push of the key says about how it is cut; empty: nothing.
  std::string Announce(worker::KeyState* state);
  // A push-pull is over, with whose sum `next` came.
  void EndPushPull(Key key, worker::KeyState* state, const std::string& next);
  void ChangeOver(worker::KeyState* state, const std::string& next);
  void ReleaseRetired(worker::KeyState* state);
  void BeginFetch(Key key, worker::KeyState* state, worker::Operation operation);
  void EndOperation(Key key, worker::KeyState* state);
  uint64_t PartBytes() const { return partition_bytes_ - partition_bytes_ % worker::kAlignBytes; }
  worker::Tensor CutAndPlace(worker::Tensor tensor);
  void OperationEnded();

  const WorkerOptions options_;
  uint64_t partition_bytes_ = options_.partition_bytes;
  Executor* const executor_;
  const std::function<void(Status)> on_failure_;
  const Logger log_;
  ps::KvWorker requests_;
  Core core_;
  worker::Steps steps_;
  worker::CriticalTensor critical_;
  worker::LinkRate rate_;
  const worker::Link link_;
  worker::Loads loads_;  // rank 0's
  Status failure_;
  uint64_t num_optimizers_ = 0;  // calls of SetOptimizer
  uint64_t credit_bytes_ = options_.credit_bytes;
  uint64_t decision_ = 0;      // of rank 0: how many it has taken
  uint64_t credit_told_ = 0;   // the latest whose credit some key has told
  uint64_t credit_heard_ = 0;  // the latest whose credit is in force here
  size_t num_open_ = 0;        // operations whose callbacks have not all run
  std::vector<UniqueFunction<void()>> on_closed_;
  std::unique_ptr<worker::MeasuredOrder> order_;  // while there is something to learn
  TimePoint last_ready_{};
  std::map<Key, worker::KeyState> keys_;  // last: its tasks refer to the above
};

}  // namespace bs
