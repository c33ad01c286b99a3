// StoreScale: a factor for partition size and credit, which suits the links to a stock store.
//
// The usual sizes suit a link of 1 Gbit/s, where a partition of 128 KiB takes a millisecond.  Each
// partition is an operation of the store.  So on a faster link small partitions keep processors
// busy and gain nothing: an urgent partition waits for the time, not the bytes, before it.  On a
// slower link smaller partitions cost few processors and save that time.  So rank 0 measures,
// before anything is declared, how long each server needs to give back some bytes, and publishes
// the scale with each tensor.  The slowest server counts: a server on this host is reached without
// any link.
//
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/kvstore/store_request.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/unique_function.h"

namespace bs::backend {

// Size of the measurement's array, unless an array must be smaller.  Below the least size the times
// say nothing about a link.
inline constexpr uint64_t kSampleBytes = uint64_t{1} << 20U;
inline constexpr uint64_t kLeastSampleBytes = uint64_t{64} << 10U;
// Scales are counted in eighths of the usual credit.
inline constexpr uint32_t kUsualScale = 8;
inline constexpr uint32_t kLargestScale = 16 * kUsualScale;

// The usual scale from 0.6 to 2 Gbit/s, twice as much from there on, four times from 4 on, ...; a
// half of it below 0.6 Gbit/s, an eighth below 0.3, unless the link would be idle then.  The bytes
// in flight must be twice the bytes that it carries in `latency`, which no bytes take either.
uint32_t ScaleFor(uint64_t bytes, Duration took, Duration latency);

constexpr uint64_t CreditFor(uint64_t usual_bytes, uint32_t scale) {
  return usual_bytes * scale / kUsualScale;
}

// A quarter of the credit, as usual.  Half of it where links are slower, because smaller partitions
// cost operations: each server there has two under way, the partition that the link carries and the
// next.
constexpr uint64_t PartitionFor(uint64_t usual_bytes, uint32_t scale) {
  return usual_bytes * scale * (scale < kUsualScale ? 2 : 1) / kUsualScale;
}

class StoreScale {
 public:
  using Done = UniqueFunction<void(Result<uint32_t>)>;

  StoreScale(StoreFn begin, std::function<TimePoint()> now);

  // Keys on a server, which no other server has.
  struct Keys {
    int32_t large;  // not in the store yet
    int32_t tiny;   // its value, a float32, is in the store already
  };
  // Pushes the first values of large keys, and pulls all keys several times.  The quickest time of
  // each is in use, because slower pulls may have waited for a processor.  Of servers the slowest
  // counts.  `done` runs once and may end this object.
  // REQUIRES: called once; `servers` is not empty, and nothing else uses their keys meanwhile;
  // size_bytes >= kLeastSampleBytes, of float32.
  void Measure(std::vector<Keys> servers, uint64_t size_bytes, Done done);

 private:
  // From the server of that index on.
  void Sample(size_t server);
  void PullBoth(const StoreRequest& large, size_t server);
  // Pulls of a key.
  struct Pulls {
    int most;
    int made = 0;
    Duration quickest = Duration::max();
  };
  // Pulls as often, or until enough have taken long.  `then` gets the quickest time.
  void Pull(StoreRequest request, Pulls pulls, UniqueFunction<void(Duration)> then);

  const StoreFn begin_;
  const std::function<TimePoint()> now_;
  std::vector<Keys> servers_;
  uint64_t size_bytes_ = 0;
  int most_ = 0;  // pulls of a key
  // Of the server with the slowest large key so far.
  Duration slowest_{};
  Duration latency_{};
  Done done_;
};

}  // namespace bs::backend
