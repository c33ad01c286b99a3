// Keeps and gives the memory of sums by its size.
#include "backend/host/spare_sums.h"

#include <utility>

namespace bs::backend {

server::SumRef SpareSums::Take(uint64_t size_bytes) {
  const auto found = sums_.find(size_bytes);
  if (found == sums_.end()) {
    return server::SumRef::Make(size_bytes, /*numa_node=*/0, num_readers_);
  }
  server::SumRef sum = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) sums_.erase(found);
  size_bytes_ -= size_bytes;
  return sum;
}

void SpareSums::Keep(server::SumRef sum, uint64_t size_bytes) {
  if (!sum || sum->InFlight() || size_bytes_ + size_bytes > kMostBytes) return;
  sums_[size_bytes].push_back(std::move(sum));
  size_bytes_ += size_bytes;
}

}  // namespace bs::backend
