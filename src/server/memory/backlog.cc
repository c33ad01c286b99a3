// The text of a full backlog.
#include "server/memory/backlog.h"

#include "base/count_of.h"

namespace bs::server {

std::string Backlog::Why(int32_t rank) const {
  const uint64_t own = of_worker_[static_cast<size_t>(rank)].load(std::memory_order_relaxed);
  return CountOf(own, "byte") + " of requests of this worker, of " + std::to_string(bytes()) +
         " of all, wait to be summed already, and there may be " + std::to_string(most_bytes_);
}

}  // namespace bs::server
