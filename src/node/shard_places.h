// PlaceShards: which cores the summing threads of a server get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/numa.h"

namespace bs::node {

struct ShardPlace {
  int node = 0;   // whose memory its buffers are
  int index = 0;  // on its node
  int core = 0;   // of that node
};

// One shard for each core, less the first core of each node, which is left to bs-io and libzmq; or
// as many as asked for (`wanted` above 0), spread over the nodes.  If not asked for, no more than
// the processors of `quota`, less one.  Servers of different rank on one host begin at different
// cores.  Pure.  REQUIRES: there are nodes, and each has a core.
std::vector<ShardPlace> PlaceShards(const std::vector<NumaNode>& nodes, int32_t wanted,
                                    int32_t rank,
                                    double quota = std::numeric_limits<double>::infinity());

// The largest partitions that a server with these shards sums on bs-io, in bytes.  A single shard
// that was not asked for means that there are two processors or fewer: two threads that hand each
// partition to each other then cost more of them than they gain.  Larger partitions would keep
// bs-io from its sockets for too long.
uint64_t DispatcherBytes(size_t num_shards, int32_t wanted);

}  // namespace bs::node
