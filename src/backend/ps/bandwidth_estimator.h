// BandwidthEstimator: measures how fast the network takes a worker's pushes, and chooses partitions
// that suit it.
//
// A partition delays a more urgent partition by the time that it takes, and costs a message
// whatever its size.  So a partition is measured in time: it suits a network that carries it in
// half a millisecond.
//
// Confined to the worker's executor, whose clock it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/executor.h"

namespace bs::backend {

struct Bandwidth {
  double bytes_per_second;     // to all servers together
  Duration round_trip;         // of a message with nothing before it, without the time of its bytes
  bool shares_memory = false;  // most bytes go to servers on this host
  bool adds_up = false;        // the workers of a host send one copy
};

// Partitions of a power of two, usually 32 to 256 KiB: the nearest to 0.55 ms of the bandwidth.
// Credit is two of them for each server, four through shared memory.  It is more where the round
// trip is so long that the network would be idle: twice the bytes that it carried meanwhile.  With
// more than three servers the 0.55 ms shrink to 0.05 ms as their number grows.  The least partition
// is then 0.4 ms of the bandwidth, 8 to 32 KiB, and 16 KiB at most with more than 16 servers.  The
// least credit is 64 KiB, or four partitions if they are less.  Where the workers of a host add up
// first, all these times are twice as long: a partition costs messages within the host too, and its
// workers share the processors.  The measurements for these rules
// are in docs/results/history.md and docs/design/scale.md.  REQUIRES: bytes_per_second >= 0,
// num_servers > 0.
PartitionAndCredit PartitionAndCreditFor(const Bandwidth& bandwidth, uint32_t num_servers);

class BandwidthEstimator {
 public:
  // `clock` is not owned.
  BandwidthEstimator(const Executor* clock, uint32_t num_servers)
      : clock_(clock), num_servers_(num_servers) {}

  // A request of next to no bytes leaves for a server, and its response comes.
  TimePoint RequestSent() const { return clock_->Now(); }
  void ResponseCame(uint32_t server, TimePoint sent);
  // A partition is pushed to some server; `size_bytes` of it travel.  Later its acknowledgement or
  // its failure comes.
  void PartitionSent(uint64_t size_bytes);
  void PartitionAcknowledged(uint64_t size_bytes);
  // Empty until enough is known.
  std::optional<Bandwidth> measured() const;
  // The bytes of all partitions so far.
  uint64_t acknowledged_bytes() const { return acknowledged_bytes_; }
  // Ends the measurement.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  // A time during which some partition was under way, and the bytes acknowledged in it.
  struct Busy {
    TimePoint begin{};
    uint64_t bytes = 0;
  };
  // `busy_` belongs to a sample, which may be full with it; it begins anew.
  void AddToSample(TimePoint now);
  // Few partitions followed each other.
  void AddShort(uint64_t bytes, Duration took);
  std::optional<Bandwidth> MeasuredByShort() const;

  const Executor* const clock_;
  const uint32_t num_servers_;
  bool stopped_ = false;
  size_t in_flight_ = 0;     // partitions
  size_t acknowledged_ = 0;  // of them, since nothing was under way
  Busy busy_{};              // since then, or since it was last added
  uint64_t acknowledged_bytes_ = 0;
  uint64_t first_bytes_ = 0;  // of the partition that had nothing before it
  // The quickest acknowledgement of such a partition, and its bytes.
  Duration quickest_ = Duration::max();
  uint64_t quickest_bytes_ = 0;
  uint64_t sample_bytes_ = 0;
  Duration sample_took_{};
  std::vector<double> rates_;  // of the samples: bytes a second
  // Where few partitions follow each other: the bytes of all, and of the partitions that were
  // quickest for their size.  By server, the quickest response to a request of next to no bytes.
  uint64_t short_bytes_ = 0;
  uint64_t best_bytes_ = 0;
  Duration best_took_{};
  std::map<uint32_t, Duration> idle_;
};

}  // namespace bs::backend
