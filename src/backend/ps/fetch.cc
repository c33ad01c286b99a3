// Pulls every partition of a tensor and counts the answers.
#include "backend/ps/fetch.h"

#include <string>
#include <utility>

namespace bs::worker {

Fetch::Fetch(const Link* link, const Tensor* tensor, std::span<std::byte> out,
             UniqueFunction<void(Status)> ended)
    : link_(link), tensor_(tensor), out_(out), ended_(std::move(ended)) {}

void Fetch::Begin(Round round, Priority priority) {
  pending_ = tensor_->partitions.size();
  for (const Partition& partition : tensor_->partitions) {
    const Piece piece{.round = round, .partition = partition, .priority = priority, .rates = {}};
    Pull(*link_, *tensor_, piece, out_.subspan(partition.offset_bytes, partition.size_bytes),
         [this](const Status& status, const std::string&) { OnPulled(status); });
  }
}

void Fetch::OnPulled(const Status& status) {
  if (!status.ok()) failure_ = link_->fail(status);
  if (--pending_ > 0) return;
  const UniqueFunction<void(Status)> ended = std::move(ended_);
  ended(std::move(failure_));
}

}  // namespace bs::worker
