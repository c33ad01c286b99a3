// KvstoreNode: a worker on the kvstore back end, with the functions of a plug-in for the store.
//
// It has no network, no membership and no messages to the other workers: it learns only that its
// operations on the store end.
//
// Thread-safe like WorkerNode, whose interface it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/kvstore/kvstore_backend.h"
#include "base/log.h"
#include "base/loop_thread.h"
#include "bytescheduler/config.h"
#include "bytescheduler/worker.h"
#include "node/node_metrics.h"
#include "node/operation_host.h"
#include "node/outcome.h"
#include "trace/timeline.h"

namespace bs::api {

class KvstoreNode final : public OperationHost {
 public:
  using Done = Worker::Done;
  // Begins an operation on the store.  Runs on bs-worker, or on bs-kvstore if it `blocks` until the
  // operation is over, so that deadlines still pass.  OnStoreDone(token) reports the end.
  using BeginFn = std::function<void(const worker::StoreRequest&, uint64_t token)>;

  // kInvalidArgument if there is no such rank.
  static Result<std::unique_ptr<KvstoreNode>> Start(const Config& config, int32_t rank,
                                                    BeginFn begin, bool blocks);
  KvstoreNode(const Config& config, int32_t rank, BeginFn begin, bool blocks);
  KvstoreNode(const KvstoreNode&) = delete;
  KvstoreNode& operator=(const KvstoreNode&) = delete;
  ~KvstoreNode();
  // Begins; operations on the store may start from now on.  Called once.
  void Join();

  // Set when the store holds the back end's own keys, or when that failed.  A barrier of the store
  // must follow on every worker before anything else.
  const Outcome& joined() const { return joined_; }
  // Set when the worker failed for good.
  const Outcome& failure() const { return failure_; }

  int32_t rank() const { return rank_; }
  int32_t num_workers() const { return num_workers_; }
  int32_t num_servers() const { return num_servers_; }
  Worker* worker() override { return worker_.get(); }
  bool has_our_servers() const override { return false; }
  void ExpectCallback() override { ++pending_; }
  void EndCallback() override;
  // Runs `visit` on the worker's thread.
  void Visit(Task visit) { thread_->Post(std::move(visit)); }
  // `done` runs on bs-worker; kDeadlineExceeded after BYTESCHEDULER_STRAGGLER_TIMEOUT, which fails
  // the worker.
  void Barrier(Done done);
  // See WorkerNode.
  Result<Metrics> Measure(Duration timeout) const;
  Result<std::vector<StepTime>> Steps(Duration timeout) const;
  // The key's name in a timeline.
  void NameKey(Key key, const std::string& name);
  // Fails this worker; the others will miss its pushes.
  void Fail(const std::string& why);

  // An operation is over; `value` has the pulled bytes.  Any thread, also inside BeginFn, also
  // after Close().
  void OnStoreDone(uint64_t token, Status status, const std::byte* value);

  // Waits up to `drain` for pending operations and fails what is left.
  void Close(Duration drain);
  // True while operations on the store have not ended; then this must not be destroyed.  REQUIRES:
  // closed.
  bool busy() const { return num_store_requests_ > 0; }

 private:
  // An operation on the store that has not ended.
  struct Open {
    uint64_t size_bytes;
    worker::StoreDone done;
  };

  void Begin(const worker::StoreRequest& request, worker::StoreDone done);
  // Applies rank 0's measurement of the scale.
  void Scale(const Config& config, uint32_t scale);
  void SetFailure(const Status& status);
  void FailLateBarrier();
  Done Counted(Done done);
  bool Drain(Duration timeout);
  void WaitUntilIdle(Duration timeout);

  const int32_t rank_, num_workers_, num_servers_;
  const Duration timeout_;
  const Duration straggler_timeout_;
  const BeginFn begin_;
  const Logger log_;
  Outcome joined_;
  Outcome failure_;
  std::atomic<bool> closing_ = false;
  std::atomic<int64_t> pending_ = 0;  // callbacks still to come
  std::atomic<int64_t> num_store_requests_ = 0;
  bool draining_ = false;  // on bs-worker
  Notification drained_;
  Notification idle_;  // set by the last operation to end while we close
  bool closed_ = false;
  // On bs-worker.
  uint64_t next_token_ = 1;
  std::map<uint64_t, Open> open_;
  struct Meeting {
    Done done;
    TimerId deadline;
  };
  std::map<uint64_t, Meeting> barriers_;  // by number
  uint64_t next_barrier_ = 1;
  std::unique_ptr<Timeline> timeline_;  // of worker_; may be null
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<LoopThread> store_thread_;  // null unless calls block
  std::unique_ptr<worker::KvstoreBackend> backend_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace bs::api
