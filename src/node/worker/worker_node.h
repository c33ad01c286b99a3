// WorkerNode: a training process's end of a job: the engine's worker, over any back end and any
// membership.
//
// It knows neither servers nor a store: whatever starts it brings a membership and a function that
// makes the back end (node/worker/ps_worker.h, node/worker/store_worker.h).
//
// Thread-safe.  No call blocks but Close() and the calls with a time-out.  Later failures arrive
// through its outcomes.  Close() blocks for a bounded time and is called once, by the destructor if
// not before.  No other call may run at that time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "base/notification.h"
#include "config/config.h"
#include "job/membership.h"
#include "node/kept_memory.h"
#include "node/outcome.h"
#include "node/worker/operation_host.h"
#include "trace/timeline.h"
#include "worker/worker.h"

namespace bs::node {

class WorkerNode final : public OperationHost {
 public:
  using Done = Worker::Done;
  // Gives the worker other sizes from now on: Worker::SetPartitionAndCredit.
  using ResizeFn = std::function<void(const backend::PartitionAndCredit& sizes)>;
  // Makes the back end of the node that holds the view.  Runs once, on the membership's executor.
  // May throw std::bad_alloc.
  using MakeBackendFn = std::function<std::unique_ptr<backend::Backend>(
      const job::SharedView& view, const ResizeFn& resize, const Logger& log)>;

  struct Parts {
    std::unique_ptr<job::Membership> membership;
    MakeBackendFn make_backend;
    WorkerOptions worker{};                  // the node fills in the view and the trace
    KeptMemory* kept_memory = nullptr;       // of the membership; null: no device uses memory
    uint64_t least_kept_bytes = UINT64_MAX;  // less is copied instead
  };

  // `log`: of MakeLogger.  A process makes one, which opens the file of BYTESCHEDULER_DEBUG.
  WorkerNode(const Config& config, Parts parts, Logger log);
  WorkerNode(const WorkerNode&) = delete;
  WorkerNode& operator=(const WorkerNode&) = delete;
  // REQUIRES: Close() was not called, or has returned ok.
  ~WorkerNode();
  // Asks to be in the job.  REQUIRES: called once, first.
  void Join();

  // Set when every node is there (ok), or when joining failed.
  const Outcome& joined() const { return joined_; }
  // Set when the worker failed for good.
  const Outcome& failure() const { return failure_; }

  // REQUIRES, here and below: joined() is ok.
  job::SharedView view() const { return view_; }
  int32_t rank() const { return view_->own.rank; }
  // For LeaveFor in another process; empty where that cannot be.
  std::string place() const { return place_; }
  Worker* worker() override { return worker_.get(); }
  Status CheckExtra(const std::string& what) const override { return backend_->CheckExtra(what); }
  void ExpectCallback() override { ++pending_; }
  void EndCallback() override;
  // Runs `visit` on the worker's thread.
  void Visit(Task visit) { executor()->Post(std::move(visit)); }
  // KeptMemory::Use; null for memory of less than LeastKeptBytes.
  std::shared_ptr<void> UseMemory(const KeptMemory::Memory& memory, const KeptMemory::OwnFn& own);
  // UINT64_MAX: no device ever uses the framework's memory.
  uint64_t LeastKeptBytes() const { return parts_.least_kept_bytes; }
  // job::Membership::Barrier.
  void Barrier(Done done);
  // See SchedulerNode.
  Result<Metrics> Measure(Duration timeout) const;
  // The latest steps (Worker::Steps); errors are as of Measure.
  Result<std::vector<StepTime>> Steps(Duration timeout) const;
  // The key's name in a timeline.
  void NameKey(Key key, const std::string& name);
  // The framework's name in a timeline.
  void NameFramework(const std::string& name);
  // Fails the whole job; every node that membership can reach gets `why`.
  void Fail(const std::string& why);

  // Lets the goodbye of Close say `reason`: why this worker leaves early.  The job goes on, and
  // calls that miss this worker fail with it.  REQUIRES: on the thread that calls Close.
  void Explain(const std::string& reason) { reason_ = reason; }
  // Waits up to `drain` for pending operations, fails the rest, leaves the job.  kUnavailable:
  // operations have not ended and may still use memory; then this must not be destroyed.
  Status Close(Duration drain);

 private:
  Executor* executor() const { return parts_.membership->executor(); }
  // All on the executor.
  void OnView(const job::SharedView& view);
  void Begin();
  void OnPrepared(const Status& status);
  void OnJobFailure(const Status& why);

  void TellEveryone(const Status& why);
  bool Drain(Duration timeout);
  void Leave(bool drained);
  void LeaveJob(bool drained);  // behind the goodbye of the back end

  const Config config_;
  const Logger log_;
  Outcome joined_;
  Outcome failure_;
  std::atomic<bool> closing_ = false;
  std::atomic<int64_t> pending_ = 0;  // callbacks still to come
  bool draining_ = false;             // on the executor
  bool gives_up_joining_ = false;     // on the executor
  Notification drained_;
  Notification left_;
  bool closed_ = false;
  std::string reason_;  // of the goodbye, perhaps none
  Parts parts_;
  // Written before joined_ is set.
  job::SharedView view_;
  std::string place_;
  std::unique_ptr<trace::Timeline> timeline_;  // of worker_; may be null
  // Null before the first view; made and ended on the executor.
  std::unique_ptr<backend::Backend> backend_;  // of worker_
  std::unique_ptr<Worker> worker_;
};

}  // namespace bs::node
