// Starts the partitions of an exchange, and counts how they end.
#include "worker/exchange_task.h"

#include <utility>

namespace bs::worker {

ExchangeTask::ExchangeTask(const OperationContext* context, Call call, UniqueFunction<void()> ended)
    : CommTask(call.key, 0, call.priority,
               call.partitions.back().offset_bytes + call.partitions.back().size_bytes),
      context_(context),
      call_(std::move(call)),
      ended_(std::move(ended)) {
  KeepPriority();
}

void ExchangeTask::Begin() {
  if (call_.gives) lent_in_ = context_->backend->LendSent(call_.in);
  if (call_.takes) lent_out_ = context_->backend->LendFilled(call_.out);
  if (call_.gives) {
    context_->core->Add(this);
    return NotifyReady();
  }
  released_ = true;
  for (const bs::Partition& partition : call_.partitions) StartPart(partition);
  Settle();  // there is nothing to give
}

void ExchangeTask::Abort(const Status& why) {
  if (aborted_.ok()) aborted_ = why;
  context_->core->Drop(this, Status(aborted_));
}

std::vector<bs::Partition> ExchangeTask::Partition(uint64_t /*partition_bytes*/) {
  return call_.partitions;
}

void ExchangeTask::Start(const bs::Partition& partition) { StartPart(partition); }

void ExchangeTask::StartPart(const bs::Partition& partition) {
  backend::ExchangePartition part{
      .key = key(), .terms = call_.terms, .partition = partition, .priority = priority()};
  if (call_.gives) {
    ++giving_;
    part.in = call_.in.subspan(partition.offset_bytes, partition.size_bytes);
    part.released = [this, index = partition.index](const Status& status, bool refused) {
      OnReleased(index, status, refused);
    };
    part.given = [this](const Status& status, bool refused) { OnGiven(status, refused); };
  }
  if (call_.takes) {
    ++taking_;
    part.out = call_.out.subspan(partition.offset_bytes, partition.size_bytes);
    part.taken = [this](const Status& status, bool refused) { OnTaken(status, refused); };
  }
  context_->backend->StartPartition(std::move(part));
}

// While this partition still counts as given, the task outlives whatever its end sets off.
void ExchangeTask::OnReleased(uint32_t index, const Status& status, bool refused) {
  Note(status, refused);
  NotifyFinish(index, status);
}

void ExchangeTask::OnGiven(const Status& status, bool refused) {
  Note(status, refused);
  --giving_;
  Settle();
}

void ExchangeTask::OnTaken(const Status& status, bool refused) {
  Note(status, refused);
  --taking_;
  Settle();
}

void ExchangeTask::Note(const Status& status, bool refused) {
  if (status.ok()) return;
  const bool own = refused && (status.code() == StatusCode::kInvalidArgument ||
                               status.code() == StatusCode::kFailedPrecondition ||
                               status.code() == StatusCode::kUnavailable ||
                               status.code() == StatusCode::kDeadlineExceeded ||
                               status.code() == StatusCode::kResourceExhausted ||
                               status.code() == StatusCode::kCancelled);
  const Status failure = own ? status : context_->fail(status);
  if (!failure_.ok()) return;
  failure_ = failure;
  context_->core->Drop(this, failure);
  // Where the server refused one request only, the others of all workers end by this.
  const bool waits = giving_ + taking_ > 1 || status.code() == StatusCode::kResourceExhausted;
  if (!own || !waits) return;
  context_->backend->Quit(key(), terms(), server(), Status::Cancelled(status.message()),
                          [](const Status&) {});
}

void ExchangeTask::OnFinished(Status status) {
  released_ = true;
  if (!status.ok() && failure_.ok() && aborted_.ok()) failure_ = std::move(status);
  Settle();
}

void ExchangeTask::Settle() {
  if (!released_ || giving_ > 0) return;
  const Status outcome = failure_.ok() ? aborted_ : failure_;
  lent_in_.reset();
  if (call_.given) std::exchange(call_.given, {})(outcome);
  if (taking_ > 0 || !call_.done) return;
  lent_out_.reset();
  const UniqueFunction<void()> ended = std::move(ended_);
  std::exchange(call_.done, {})(outcome);
  ended();
}

}  // namespace bs::worker
