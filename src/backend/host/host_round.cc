// Adds contributions up in their order.
#include "backend/host/host_round.h"

#include <utility>

#include "base/check.h"
#include "reduce/reduce.h"

namespace bs::backend {

HostRound::HostRound(size_t num_workers, SpareSums* spares, const protocol::PartitionShape& shape)
    : shape_(shape), spares_(spares), taken_(num_workers) {}

void HostRound::Take(size_t place, ps::Frame payload, bool waits) {
  BS_CHECK(!taken_[place] && payload.size() == shape_.size_bytes);
  if (!sum_) sum_ = spares_->Take(shape_.size_bytes);
  taken_[place] = true;
  if (waits) {
    early_.emplace(place, ps::Frame::Alone(std::move(payload)));
    return;
  }
  std::vector<ps::Frame> ready;
  ready.push_back(std::move(payload));
  for (; next_ < num_workers() && taken_[next_]; ++next_) {
    auto early = early_.extract(next_);
    if (early.empty()) continue;
    ready.push_back(std::move(early.mapped()));
  }
  Add(ready);
}

void HostRound::Add(const std::vector<ps::Frame>& ready) {
  std::vector<const void*> inputs;
  inputs.reserve(ready.size() + 1);
  if (num_summed_ > 0) inputs.push_back(sum_->data());
  for (const ps::Frame& payload : ready) inputs.push_back(payload.bytes().data());
  num_summed_ += ready.size();
  if (inputs.size() == 1) return reduce::Copy(sum_->data(), inputs[0], shape_.size_bytes);
  const auto dtype = static_cast<DType>(shape_.dtype);
  reduce::SumInputs(reduce::BestKernels(), dtype, sum_->data(), inputs,
                    shape_.size_bytes / SizeOf(dtype));
}

}  // namespace bs::backend
