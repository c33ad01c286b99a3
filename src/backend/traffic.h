// Traffic: counts of the exchanges with a destination, for metrics.  Values.
#pragma once

#include <cstdint>

#include "base/metrics.h"
#include "base/types.h"

namespace bs::backend {

struct Traffic {
  // Exchanges that ended with ok, their bytes on the way, and how long they took, all together.
  struct Direction {
    uint64_t partitions = 0;
    uint64_t bytes = 0;
    Duration time{};

    void Add(uint64_t size_bytes, Duration took) {
      ++partitions;
      bytes += size_bytes;
      time += took;
    }
  };
  Direction pushed;
  Direction pulled;
  uint64_t repeats = 0;  // of requests
};

// docs/operate/metrics.md describes each number.
void AddTraffic(const Traffic& traffic, uint32_t destination, Metrics* metrics);

}  // namespace bs::backend
