// Sends the partitions the Core starts, and counts the answers.
#include "worker/push_pull_task.h"

#include <utility>

#include "base/check.h"

namespace bs::worker {

PushPullTask::PushPullTask(const Link* link, const Tensor* tensor, Call call,
                           UniqueFunction<void()> ended)
    : CommTask(tensor->key, call.round, call.priority, tensor->size_bytes),
      link_(link),
      tensor_(tensor),
      rates_(call.rates),
      in_(call.in),
      out_(call.out),
      pulls_(static_cast<bool>(call.pulled)),
      push_{.done = std::move(call.pushed)},
      pull_{.done = std::move(call.pulled)},
      ended_(std::move(ended)) {
  BS_CHECK(in_.size() == tensor->size_bytes && (!pulls_ || out_.size() == tensor->size_bytes));
}

void PushPullTask::Begin() {
  link_->core->Add(this);
  NotifyReady();
}

std::vector<bs::Partition> PushPullTask::Partition(uint64_t /*partition_bytes*/) {
  return tensor_->partitions;  // as rank 0 cut it
}

void PushPullTask::Start(const bs::Partition& partition) {
  const Piece piece{
      .round = round(), .partition = partition, .priority = priority(), .rates = rates_};
  const uint32_t index = partition.index;
  ++push_.pending;
  Push(*link_, *tensor_, piece, in_.subspan(partition.offset_bytes, partition.size_bytes),
       [this, index](const Status& status) { OnAnswer(&push_, index, status); });
  if (!pulls_) return;
  ++pull_.pending;
  Pull(*link_, *tensor_, piece, out_.subspan(partition.offset_bytes, partition.size_bytes),
       [this, index](const Status& status) { OnAnswer(&pull_, index, status); });
}

void PushPullTask::OnAnswer(Direction* direction, uint32_t index, const Status& status) {
  // While this answer still counts as pending the task outlives whatever fails.
  if (!status.ok()) failure_ = link_->fail(status);
  --direction->pending;
  if (status.ok()) ++direction->answered;
  const Direction* const gives_credit = link_->credit_until_pulled && pulls_ ? &pull_ : &push_;
  // The last NotifyFinish settles, in OnFinished; before it nothing of its direction can be over.
  direction == gives_credit ? NotifyFinish(index, status) : Settle();
}

void PushPullTask::OnFinished(Status status) {
  released_ = true;
  if (!status.ok()) failure_ = std::move(status);
  Settle();
}

void PushPullTask::Settle() {
  Settle(&push_);
  Settle(&pull_);
  if (!released_ || push_.done || pull_.done || push_.pending > 0 || pull_.pending > 0) return;
  const UniqueFunction<void()> ended = std::move(ended_);
  ended();
}

void PushPullTask::Settle(Direction* direction) {
  if (!direction->done) return;
  const bool complete = direction->answered == partitions().size();
  // After a failure the Core starts nothing more.
  const bool failed = !failure_.ok() && direction->pending == 0;
  if (!complete && !failed) return;
  const UniqueFunction<void(Status)> done = std::move(direction->done);
  done(complete ? Status::Ok() : failure_);
}

}  // namespace bs::worker
