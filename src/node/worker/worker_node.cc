// WorkerNode connects a membership, a back end and a worker, and ends them.
//
// It ends in this order, so that no call reaches a destroyed object and no memory of the caller is
// freed while the network may read it:
//  1. pending operations get their time, then the worker closes; once the executor has seen that,
//     nothing new is sent;
//  2. if the job is well, the back end waits until no other worker needs its bytes, and the
//     membership leaves the job; it closes: nothing more is received, and every frame of the
//     caller's memory is released, so the worker's last callbacks run;
//  3. the worker and its back end are destroyed on the executor, which then ends;
//  4. the timeline writes its end.
#include "node/worker/worker_node.h"

#include <utility>

#include "base/guarded.h"
#include "base/run_on.h"
#include "node/network.h"
#include "node/node_metrics.h"

namespace bs::node {

WorkerNode::WorkerNode(const Config& config, Parts parts, Logger log)
    : config_(config), log_(std::move(log)), parts_(std::move(parts)) {}

WorkerNode::~WorkerNode() { static_cast<void>(Close(Duration::zero())); }

void WorkerNode::Join() {
  executor()->Post([this] {
    parts_.membership->Join({.on_view = [this](const job::SharedView& view) { OnView(view); },
                             .on_failure = [this](const Status& why) { OnJobFailure(why); }});
  });
}

void WorkerNode::OnView(const job::SharedView& view) {
  if (gives_up_joining_ || worker_) return;
  view_ = view;
  const Status begun = Guarded([&] {
    Begin();
    return Status::Ok();
  });
  if (begun.ok()) return backend_->Prepare([this](const Status& status) { OnPrepared(status); });
  TellEveryone(begun);
  OnJobFailure(begun);
}

void WorkerNode::Begin() {
  place_ = parts_.membership->place();
  const Logger log = log_.Named("worker " + std::to_string(rank()));
  timeline_ = trace::Timeline::OfWorker(config_, view_, log);
  backend_ = parts_.make_backend(
      view_,
      [this](const backend::PartitionAndCredit& sizes) {
        worker_->SetPartitionAndCredit(sizes.partition_bytes, sizes.credit_bytes);
      },
      log);
  WorkerOptions options = parts_.worker;
  options.view = view_;
  options.trace = timeline_ ? timeline_->trace() : nullptr;
  worker_ = std::make_unique<Worker>(
      options, executor(), backend_.get(),
      [this](const Status& why) {
        if (!closing_ && failure_.Set(why)) TellEveryone(why);
      },
      log);
}

void WorkerNode::OnPrepared(const Status& status) {
  joined_.Set(status);
  if (status.ok()) return;
  // The others may have prepared, or wait for this worker.
  if (failure_.Set(status)) TellEveryone(status);
  worker_->Fail(status);
}

void WorkerNode::OnJobFailure(const Status& why) {
  failure_.Set(why);
  joined_.Set(why);
  if (worker_) worker_->Fail(why);
}

void WorkerNode::TellEveryone(const Status& why) {
  executor()->Post([this, why] { parts_.membership->Fail(why); });
}

void WorkerNode::EndCallback() {
  if (--pending_ == 0 && draining_) drained_.Notify();
}

std::shared_ptr<void> WorkerNode::UseMemory(const KeptMemory::Memory& memory,
                                            const KeptMemory::OwnFn& own) {
  const bool kept = parts_.kept_memory != nullptr && memory.bytes.size() >= LeastKeptBytes();
  return kept ? parts_.kept_memory->Use(memory, own) : nullptr;
}

void WorkerNode::Barrier(Done done) {
  executor()->Post([this, done = std::move(done)]() mutable {
    if (const std::optional<Status> failure = failure_.Get()) return done(*failure);
    parts_.membership->Barrier([done = std::move(done)](const Status& status) { done(status); });
  });
}

Result<Metrics> WorkerNode::Measure(Duration timeout) const {
  return MetricsOfWorker(executor(), worker_, failure_, timeout);
}

void WorkerNode::NameKey(Key key, const std::string& name) {
  if (timeline_) timeline_->Name(key, name);
}

void WorkerNode::NameFramework(const std::string& name) {
  if (timeline_) timeline_->Framework(name);
}

Result<std::vector<StepTime>> WorkerNode::Steps(Duration timeout) const {
  return StepsOfWorker(executor(), worker_, timeout);
}

void WorkerNode::Fail(const std::string& why) {
  const Status status =
      Status::Unavailable("worker " + std::to_string(rank()) + " gave up: " + why);
  if (!failure_.Set(status)) return;
  worker_->Fail(status);
  TellEveryone(status);
}

bool WorkerNode::Drain(Duration timeout) {
  RunOn(executor(), [this] {
    draining_ = true;
    if (pending_ == 0) drained_.Notify();
  });
  return drained_.WaitFor(timeout);
}

void WorkerNode::Leave(bool drained) {
  RunOn(executor(), [this, drained] {
    backend_->Leave(reason_, [this, drained](const Status&) { LeaveJob(drained); });
  });
  left_.Wait();
}

void WorkerNode::LeaveJob(bool drained) {
  parts_.membership->Leave({.drained = drained, .reason = reason_},
                           [this](const Status&) { left_.Notify(); });
}

Status WorkerNode::Close(Duration drain) {
  if (std::exchange(closed_, true)) return Status::Ok();
  // From here on worker_ stays as it is.
  RunOn(executor(), [this] { gives_up_joining_ = true; });
  Notification released;
  if (worker_) {
    const bool well = !failure_.Get();
    const bool drained = well && Drain(drain);
    closing_ = true;
    worker_->Close([&released] { released.Notify(); });
    RunOn(executor(), [] {});
    if (well) Leave(drained);
  }
  Status closed = parts_.membership->Close();
  if (worker_) released.Wait();
  if (!closed.ok()) return closed;
  RunOn(executor(), [this] {
    worker_.reset();
    backend_.reset();
  });
  parts_.membership.reset();
  timeline_.reset();
  return Status::Ok();
}

}  // namespace bs::node
