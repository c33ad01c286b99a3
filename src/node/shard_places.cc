// Spreads shards over NUMA nodes and cores.
#include "node/shard_places.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace bs::node {

std::vector<ShardPlace> PlaceShards(const std::vector<NumaNode>& nodes, int32_t wanted,
                                    int32_t rank, double quota) {
  std::vector<size_t> counts(nodes.size(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    counts[i] = std::max<size_t>(1, nodes[i].cores.size() - 1);
  }
  const double allowed = std::max(1.0, std::ceil(quota) - 1);
  const size_t all = std::accumulate(counts.begin(), counts.end(), size_t{0});
  size_t bound = static_cast<double>(all) > allowed ? static_cast<size_t>(allowed) : 0;
  if (wanted > 0) bound = static_cast<size_t>(wanted);
  if (bound > 0) {
    std::fill(counts.begin(), counts.end(), 0);
    for (size_t i = 0; i < bound; ++i) ++counts[i % nodes.size()];
  }
  std::vector<ShardPlace> places;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::vector<int>& cores = nodes[i].cores;
    const size_t first = 1 + static_cast<size_t>(rank) * counts[i];
    for (size_t j = 0; j < counts[i]; ++j) {
      places.push_back({nodes[i].id, static_cast<int>(j), cores[(first + j) % cores.size()]});
    }
  }
  return places;
}

uint64_t DispatcherBytes(size_t num_shards, int32_t wanted) {
  // Summing 16 KiB takes less time than another thread takes to wake up, 1 MiB about 0.1 ms.
  constexpr uint64_t kUsualBytes = uint64_t{16} << 10U;
  constexpr uint64_t kAloneBytes = uint64_t{1} << 20U;
  return num_shards == 1 && wanted == 0 ? kAloneBytes : kUsualBytes;
}

}  // namespace bs::node
