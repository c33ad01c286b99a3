// StoreScale: a factor for partition size and credit, which suits the link to a stock store.
//
// The usual ones suit a link of 1 Gbit/s, where a partition of 128 KiB takes a millisecond.  Each
// partition is an operation of the store, so where the link is faster than that small ones keep
// processors busy and gain nothing: what an urgent partition waits for is the time, not the bytes,
// before it. Where the link is slower, smaller ones cost few processors and save that time. So rank
// 0 measures, before anything is declared, how long the store needs to give back some bytes, and
// publishes the scale with each tensor.
//
// Confined to the worker's executor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/kvstore/store_request.h"
#include "base/executor.h"
#include "base/unique_function.h"
#include "bytescheduler/status.h"

namespace bs::worker {

// Size of the measurement's array, unless an array must be smaller.  Below the least size the times
// say nothing about a link.
inline constexpr uint64_t kSampleBytes = uint64_t{1} << 20U;
inline constexpr uint64_t kLeastSampleBytes = uint64_t{64} << 10U;
// Scales are counted in eighths of the usual partitions.
inline constexpr uint32_t kUsualScale = 8;
inline constexpr uint32_t kLargestScale = 16 * kUsualScale;

// The usual one from 0.6 to 2 Gbit/s, twice as much from there on, four times from 4 on, ...; a
// quarter of it below 0.6 Gbit/s, an eighth below 0.2, unless the link would be idle then: what is
// in flight must be twice what it carries in `latency`, which no bytes take either.
uint32_t ScaleFor(uint64_t bytes, Duration took, Duration latency);

class StoreScale {
 public:
  using Done = UniqueFunction<void(Result<uint32_t>)>;

  StoreScale(StoreFn begin, std::function<TimePoint()> now);

  // Pushes the first value of `store_key` and pulls it several times.  It also pulls `tiny_key`,
  // whose value, one float32, is in the store already.  The quickest time of each is in use,
  // because slower ones may have waited for a processor.  `done` runs once and may end this object.
  // REQUIRES: called once; `store_key` has no other user; size_bytes >= kLeastSampleBytes, of
  // float32.
  void Measure(int32_t store_key, uint64_t size_bytes, int32_t tiny_key, Done done);

 private:
  void PullBoth(const StoreRequest& tiny, const StoreRequest& large);
  // Pulls until `left` is 0, or enough have taken long.
  void Pull(StoreRequest request, int left, Duration quickest, UniqueFunction<void(Duration)> then);

  const StoreFn begin_;
  const std::function<TimePoint()> now_;
  Done done_;
};

}  // namespace bs::worker
