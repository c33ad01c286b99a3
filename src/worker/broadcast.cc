// Declares or looks up a key, then moves its first value.
#include "worker/broadcast.h"

#include <utility>

namespace bs::worker {

Broadcast::Broadcast(const OperationContext* context, const protocol::Tensor& tensor,
                     std::span<std::byte> value, Ended ended)
    : context_(context), tensor_(tensor), value_(value), ended_(std::move(ended)) {}

void Broadcast::Publish() {
  context_->backend->Declare(tensor_, [this](const Status& status) {
    if (status.ok()) return PushAll();
    // The earlier holder of this rank has cut it, perhaps in another way.
    const bool other = context_->rejoined() && status.code() == StatusCode::kAlreadyExists;
    other ? Adopt([this] { PushAll(); }) : End(Judge(status));
  });
}

void Broadcast::Adopt(UniqueFunction<void()> then) {
  context_->backend->Lookup(tensor_,
                            [this, then = std::move(then)](Result<protocol::Tensor> found) {
                              if (!found.ok()) return End(Judge(found.status()));
                              found.value().about = std::move(tensor_.about);
                              found.value().hosted = tensor_.hosted;
                              tensor_ = std::move(found.value());
                              then();
                            });
}

void Broadcast::Receive() {
  Adopt([this] { PullAll(); });
}

void Broadcast::PushAll() {
  PushPullTask::Call call;
  call.in = value_;
  call.pushed = [this](Status status) { failure_ = std::move(status); };
  task_ = std::make_unique<PushPullTask>(context_, &tensor_, std::move(call), [this] {
    if (!failure_.ok()) return End(failure_);
    // The earlier holder of this rank had pushed its value already, and that stays.
    context_->rejoined() && tensor_.mode == Mode::kAsynchronous ? PullAll()
                                                                : End(std::move(tensor_));
  });
  task_->Begin();
}

void Broadcast::PullAll() {
  fetch_ = std::make_unique<Fetch>(context_, &tensor_, value_, [this](Status status) {
    status.ok() ? End(std::move(tensor_)) : End(std::move(status));
  });
  fetch_->Begin(0, 0);
}

Status Broadcast::Judge(const Status& refused) const {
  switch (refused.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAlreadyExists:
      return refused;
    default:
      return context_->fail(refused);
  }
}

void Broadcast::End(Result<protocol::Tensor> outcome) {
  const Ended ended = std::move(ended_);
  ended(std::move(outcome));
}

}  // namespace bs::worker
