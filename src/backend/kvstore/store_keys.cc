// Keys of a server are a residue class modulo the number of servers.
#include "backend/kvstore/store_keys.h"

#include <limits>

#include "base/check.h"

namespace bs::backend {
namespace {

constexpr int64_t kFactor = 9973;
// Smaller keys belong to users of the store from before it was wrapped: MXNet's own are small.
constexpr int64_t kFirst = 65536;
// Beyond, the product overflows the 32 bits that a stock worker computes it in.
constexpr int64_t kLast = std::numeric_limits<int32_t>::max() / kFactor;

}  // namespace

StoreKeys::StoreKeys(uint32_t num_servers) : next_(num_servers, kLast + 1) {
  BS_CHECK(num_servers > 0);
  const auto servers = static_cast<int64_t>(num_servers);
  for (int64_t key = kFirst; key < kFirst + servers; ++key) {
    next_[static_cast<size_t>(key * kFactor % servers)] = key;
  }
}

std::optional<int32_t> StoreKeys::Take(uint32_t server) {
  int64_t& next = next_[server];
  if (next > kLast) return std::nullopt;
  const auto key = static_cast<int32_t>(next);
  next += static_cast<int64_t>(next_.size());
  return key;
}

}  // namespace bs::backend
