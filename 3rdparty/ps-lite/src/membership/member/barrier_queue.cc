// BarrierQueue: its requests, ends and limits.
#include "membership/member/barrier_queue.h"

#include <utility>

#include "ps/text.h"
#include "wire/control.h"

namespace ps {

BarrierQueue::BarrierQueue(TaskScope* scope, bs::Duration retry_interval, Hooks hooks)
    : scope_(scope), retry_interval_(retry_interval), hooks_(std::move(hooks)), retry_(scope) {}

void BarrierQueue::Add(Call call) {
  calls_.push_back(std::move(call));
  if (calls_.size() == 1) Begin();
}

void BarrierQueue::OnEnd(uint64_t sequence, const bs::Status& status) {
  if (IsFirst(sequence)) EndFirst(status);
}

void BarrierQueue::OnWaiting(uint64_t sequence, const std::string& waits_for) {
  if (IsFirst(sequence)) waits_for_ = waits_for;
}

void BarrierQueue::EndFirst(const bs::Status& status) {
  StopWaiting();
  Call call = std::move(calls_.front());
  calls_.pop_front();
  if (call.done) hooks_.complete(std::move(call.done), status);
  if (!empty()) Begin();
}

void BarrierQueue::EndAll(const bs::Status& status) {
  StopWaiting();
  for (Call& call : std::exchange(calls_, {})) {
    if (call.done) hooks_.complete(std::move(call.done), status);
  }
}

void BarrierQueue::Begin() {
  const Call& call = calls_.front();
  sequence_ = hooks_.next_sequence();
  waits_for_.clear();
  hooks_.send(call, sequence_);
  if (call.repeats) {
    retry_.Start(retry_interval_, [this] { hooks_.send(calls_.front(), sequence_); });
  }
  if (!call.limit) return;
  timer_ = scope_->After(call.limit->time, [this, limit = *call.limit] { OnLate(limit); });
}

void BarrierQueue::OnLate(const Limit& limit) {
  timer_ = 0;
  EndFirst(bs::Status::DeadlineExceeded("barrier of " + DescribeGroup(calls_.front().group) +
                                        ": not complete in " + TextOf(limit.time) +
                                        (waits_for_.empty() ? "" : ", waiting for " + waits_for_) +
                                        " (" + limit.setting + ")"));
}

void BarrierQueue::StopWaiting() {
  retry_.Stop();
  if (timer_ != 0) scope_->Cancel(std::exchange(timer_, 0));
}

}  // namespace ps
