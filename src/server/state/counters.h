// Counters: a shard's work on native keys in numbers, for metrics.
//
// Confined to the shard's executor.
#pragma once

#include <cstdint>
#include <vector>

#include "base/metrics.h"
#include "server/state/server_options.h"

namespace bs::server {

class Counters {
 public:
  // There are so many workers; may throw std::bad_alloc.  All below take ranks below that.
  void Expect(int32_t workers) { workers_.resize(static_cast<size_t>(workers)); }

  // A push of `rank` is in a round from 1 on; `opens`: the first of it.
  void Contributed(int32_t rank, bool opens);
  // A push of `rank` counts, of any kind of key.
  void Pushed(int32_t rank, uint64_t size_bytes);
  void Pulled(int32_t rank, uint64_t size_bytes);
  void Refused() { ++refused_; }
  // A round from 1 on has its sum.  The times are zero if they are not measured.
  void Summed(const RoundTimes& times);
  // Codes were added or decoded, or a sum coded, in that time; zero if it is not measured.
  void Coded(Duration time) { coding_time_ += time; }
  // So much memory is kept for values from now on.
  void Kept(uint64_t size_bytes) { kept_bytes_ += size_bytes; }
  // So much of it is given back.
  void Freed(uint64_t size_bytes) { kept_bytes_ -= size_bytes; }

  void Measure(Metrics* metrics) const;

 private:
  struct OfWorker {
    uint64_t pushes = 0;
    uint64_t pushed_bytes = 0;
    uint64_t pulls = 0;
    uint64_t pulled_bytes = 0;
    uint64_t contributions = 0;
    uint64_t last = 0;  // rounds to which it came last
    Duration waited{};  // for it in these
  };
  OfWorker& of(int32_t rank) { return workers_[static_cast<size_t>(rank)]; }

  std::vector<OfWorker> workers_;  // by rank
  uint64_t rounds_begun_ = 0;
  uint64_t rounds_ = 0;
  Duration sum_time_{};
  Duration coding_time_{};
  uint64_t refused_ = 0;
  uint64_t kept_bytes_ = 0;
};

}  // namespace bs::server
