// Asks for every partition of a tensor and counts the responses.
#include "worker/fetch.h"

#include <string>
#include <utility>

namespace bs::worker {

Fetch::Fetch(const OperationContext* context, const protocol::Tensor* tensor,
             std::span<std::byte> out, UniqueFunction<void(Status)> ended)
    : context_(context), tensor_(tensor), out_(out), ended_(std::move(ended)) {}

void Fetch::Begin(Round round, Priority priority) {
  lent_ = context_->backend->LendFilled(out_);
  pending_ = tensor_->partitions.size();
  for (const Partition& partition : tensor_->partitions) {
    backend::Exchange exchange{.round = round, .partition = partition, .priority = priority};
    exchange.out = out_.subspan(partition.offset_bytes, partition.size_bytes);
    exchange.summed = [this](const Status& status, const std::string&) { OnSum(status); };
    context_->backend->Start(*tensor_, std::move(exchange));
  }
}

void Fetch::OnSum(const Status& status) {
  if (!status.ok()) failure_ = context_->fail(status);
  if (--pending_ > 0) return;
  lent_.reset();
  const UniqueFunction<void(Status)> ended = std::move(ended_);
  ended(std::move(failure_));
}

}  // namespace bs::worker
