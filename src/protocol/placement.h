// Placement: the partitions of a tensor and the server that sums each.
//
// Pure functions.  Rank 0 places each tensor when it is initialised and publishes the result
// through the key's home server.  So all workers use the same placement, whatever order they
// initialise in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs::protocol {

// Splits `size_bytes` into ranges of at most `partition_bytes`, each but the last a multiple of
// `align_bytes`; at least one range (an empty tensor has one empty range).  Servers are all 0.
// REQUIRES: partition_bytes >= align_bytes > 0.
std::vector<Partition> SplitIntoPartitions(uint64_t size_bytes, uint64_t partition_bytes,
                                           uint64_t align_bytes);

// Bytes placed on each server so far.
class Loads {
 public:
  // Servers get equal shares.  REQUIRES: num_servers > 0.
  explicit Loads(uint32_t num_servers) : bytes_(num_servers, 0) {}
  // Servers get bytes by these weights (ServerWeights); none where a weight is 0.  Empty: equal
  // shares.  REQUIRES: a weight for each server, and at least one is not 0.
  Loads(uint32_t num_servers, std::vector<uint32_t> weights);
  // Gives each partition, in order, to the server that lacks most of its share of all bytes (the
  // lowest rank of several).  No server has its share exceeded by a whole partition.  With equal
  // shares that server is the least loaded, and the fullest and the emptiest differ by at most the
  // largest partition placed.
  void Place(std::span<Partition> partitions);
  // REQUIRES: they were placed here.
  void Remove(std::span<const Partition> partitions);
  std::span<const uint64_t> bytes() const { return bytes_; }

 private:
  // Returns the server that lacks most, once `size_bytes` more are there.
  size_t NeediestFor(uint64_t size_bytes) const;

  std::vector<uint64_t> bytes_;
  std::vector<uint32_t> weights_{};  // empty: equal
  uint64_t total_weight_ = 0;
};

// The server that keeps a key's declaration: spread by a hash of the key.
uint32_t HomeServer(Key key, uint32_t num_servers);

// The servers of a tensor's partitions as bytes for the wire (two a partition, little-endian), and
// back.
std::vector<std::byte> EncodeServers(std::span<const Partition> partitions);
// kInvalidArgument if the bytes do not fit the partitions or name a server that does not exist.
Status DecodeServers(std::span<const std::byte> bytes, uint32_t num_servers,
                     std::span<Partition> partitions);

}  // namespace bs::protocol
