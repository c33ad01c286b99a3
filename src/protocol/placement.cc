// Placement: splitting tensors into partitions and balancing these over servers by bytes.
#include "protocol/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"

namespace bs::protocol {

std::vector<Partition> SplitIntoPartitions(uint64_t size_bytes, uint64_t partition_bytes,
                                           uint64_t align_bytes) {
  BS_CHECK(align_bytes > 0 && partition_bytes >= align_bytes);
  const uint64_t step = partition_bytes - partition_bytes % align_bytes;
  std::vector<Partition> partitions;
  partitions.reserve(size_bytes / step + 1);
  uint64_t offset = 0;
  do {
    const uint64_t size = std::min(step, size_bytes - offset);
    partitions.push_back({.index = static_cast<uint32_t>(partitions.size()),
                          .server = 0,
                          .offset_bytes = offset,
                          .size_bytes = size});
    offset += size;
  } while (offset < size_bytes);
  return partitions;
}

Loads::Loads(uint32_t num_servers, std::vector<uint32_t> weights)
    : bytes_(num_servers, 0),
      weights_(std::move(weights)),
      total_weight_(std::accumulate(weights_.begin(), weights_.end(), uint64_t{0})) {
  BS_CHECK(weights_.empty() || (weights_.size() == num_servers && total_weight_ > 0));
}

size_t Loads::NeediestFor(uint64_t size_bytes) const {
  if (weights_.empty()) {
    return static_cast<size_t>(std::min_element(bytes_.begin(), bytes_.end()) - bytes_.begin());
  }
  const uint64_t all = std::accumulate(bytes_.begin(), bytes_.end(), size_bytes);
  size_t neediest = 0;
  int64_t most = std::numeric_limits<int64_t>::min();
  for (size_t server = 0; server < bytes_.size(); ++server) {
    if (weights_[server] == 0) continue;
    const auto lacks = static_cast<int64_t>(weights_[server] * all) -
                       static_cast<int64_t>(total_weight_ * bytes_[server]);
    if (lacks > most) neediest = server;
    most = std::max(most, lacks);
  }
  return neediest;
}

void Loads::Place(std::span<Partition> partitions) {
  for (Partition& partition : partitions) {
    const size_t server = NeediestFor(partition.size_bytes);
    partition.server = static_cast<uint32_t>(server);
    bytes_[server] += partition.size_bytes;
  }
}

void Loads::Remove(std::span<const Partition> partitions) {
  for (const Partition& partition : partitions) bytes_[partition.server] -= partition.size_bytes;
}

uint32_t HomeServer(Key key, uint32_t num_servers) {
  BS_CHECK(num_servers > 0);
  // The finalizer of splitmix64 (Steele et al., OOPSLA 2014): keys are often small and regular.
  uint64_t x = key + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return static_cast<uint32_t>((x ^ (x >> 31U)) % num_servers);
}

std::vector<std::byte> EncodeServers(std::span<const Partition> partitions) {
  std::vector<std::byte> bytes;
  bytes.reserve(2 * partitions.size());
  for (const Partition& partition : partitions) {
    bytes.push_back(static_cast<std::byte>(partition.server & 0xffU));
    bytes.push_back(static_cast<std::byte>(partition.server >> 8U));
  }
  return bytes;
}

Status DecodeServers(std::span<const std::byte> bytes, uint32_t num_servers,
                     std::span<Partition> partitions) {
  if (bytes.size() != 2 * partitions.size()) {
    return Status::InvalidArgument("a placement of " + CountOf(bytes.size(), "byte") + " for " +
                                   CountOf(partitions.size(), "partition") +
                                   "; want two bytes each");
  }
  for (size_t i = 0; i < partitions.size(); ++i) {
    const auto low = std::to_integer<uint32_t>(bytes[2 * i]);
    const auto high = std::to_integer<uint32_t>(bytes[2 * i + 1]);
    const uint32_t server = low | (high << 8U);
    if (server >= num_servers) {
      return Status::InvalidArgument("a placement on server " + std::to_string(server) + " of " +
                                     std::to_string(num_servers));
    }
    partitions[i].server = server;
  }
  return Status::Ok();
}

}  // namespace bs::protocol
