// Declares or looks up a key, then moves its first value.
#include "backend/ps/broadcast.h"

#include <string>
#include <utility>

namespace bs::worker {

Broadcast::Broadcast(const Link* link, const Tensor& tensor, std::span<std::byte> value,
                     Ended ended)
    : link_(link), tensor_(tensor), value_(value), ended_(std::move(ended)) {}

void Broadcast::Publish() {
  const TimePoint asked = link_->rate != nullptr ? link_->rate->Asked() : TimePoint();
  Declare(*link_, tensor_, [this, asked](const Status& status) {
    if (status.ok() && link_->rate != nullptr) {
      link_->rate->Told(HomeServer(tensor_.key, link_->num_servers), asked);
    }
    if (status.ok()) return PushAll();
    // The one before us has cut it, perhaps in another way.
    const bool other = link_->again && status.code() == StatusCode::kAlreadyExists;
    other ? Adopt([this] { PushAll(); }) : End(Judge(status));
  });
}

void Broadcast::Adopt(UniqueFunction<void()> then) {
  Lookup(*link_, tensor_, [this, then = std::move(then)](Result<Tensor> found) {
    if (!found.ok()) return End(Judge(found.status()));
    found.value().about = std::move(tensor_.about);
    found.value().hosted = tensor_.hosted;
    tensor_ = std::move(found.value());
    then();
  });
}

void Broadcast::Fetch() {
  Adopt([this] { PullAll(); });
}

void Broadcast::PushAll() {
  PushPullTask::Call call;
  call.in = value_;
  call.pushed = [this](Status status) { failure_ = std::move(status); };
  task_ = std::make_unique<PushPullTask>(link_, &tensor_, std::move(call), [this] {
    if (!failure_.ok()) return End(failure_);
    // The earlier holder of this place had pushed its value already, and that stays.
    link_->again&& tensor_.mode == Mode::kAsynchronous ? PullAll() : End(std::move(tensor_));
  });
  task_->Begin();
}

void Broadcast::PullAll() {
  pending_ = tensor_.partitions.size();
  for (const Partition& partition : tensor_.partitions) {
    const Piece piece{.round = 0, .partition = partition, .priority = 0, .rates = {}};
    Pull(*link_, tensor_, piece, value_.subspan(partition.offset_bytes, partition.size_bytes),
         [this](const Status& status, const std::string&) { OnPulled(status); });
  }
}

void Broadcast::OnPulled(const Status& status) {
  if (!status.ok()) failure_ = link_->fail(status);
  if (--pending_ > 0) return;
  failure_.ok() ? End(std::move(tensor_)) : End(failure_);
}

Status Broadcast::Judge(const Status& refused) const {
  switch (refused.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAlreadyExists:
      return refused;
    default:
      return link_->fail(refused);
  }
}

void Broadcast::End(Result<Tensor> outcome) {
  const Ended ended = std::move(ended_);
  ended(std::move(outcome));
}

}  // namespace bs::worker
