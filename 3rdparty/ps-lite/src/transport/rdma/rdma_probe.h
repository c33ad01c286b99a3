// RdmaProbe: an end of a measurement of READs between two hosts.
//
// Each end has a queue pair and a block of memory that the other end may READ.  The ends exchange
// their offers by whatever they have; then either may READ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/executor.h"
#include "base/numa.h"
#include "base/status.h"
#include "base/types.h"
#include "transport/rdma/rdma_offer.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace ps {

// Confined to one thread.  An error names the device; after an error the probe is of no use.  Open,
// Join and destruction block for the device alone, for milliseconds; Read blocks for the other end.
class RdmaProbe {
 public:
  static constexpr uint32_t kBlockBytes = 256U << 10U;

  // Opens the device that `options` name.  `clock` is not owned, and outlives the probe.
  static bs::Result<std::unique_ptr<RdmaProbe>> Open(const RdmaOptions& options,
                                                     const bs::Executor* clock);
  // Used by Open.
  RdmaProbe(std::shared_ptr<VerbsDevice> device, RdmaPort port, const bs::Executor* clock);
  RdmaProbe(const RdmaProbe&) = delete;
  RdmaProbe& operator=(const RdmaProbe&) = delete;
  // Afterwards nothing reads the block any more.
  ~RdmaProbe() = default;

  // A line of ASCII, for the other end.
  const std::string& offer() const { return offer_; }
  // Takes the other end's.  kInvalidArgument: it is none.
  bs::Status Join(std::string_view offer);

  struct Times {
    uint32_t reads = 0;
    bs::Duration median{};
  };
  // READs the first `size_bytes` of the other end's block up to `most_reads` times, in sequence,
  // and checks them.  It begins no READ after `limit`; kDeadlineExceeded if a READ takes as long.
  // So it blocks for at most twice `limit`.
  // REQUIRES: Join was ok on both ends; 0 < size_bytes <= kBlockBytes.
  bs::Result<Times> Read(uint32_t size_bytes, uint32_t most_reads, bs::Duration limit);

 private:
  // Whole pages with their region.
  struct Memory {
    bs::NodeBuffer bytes{};
    std::unique_ptr<RdmaRegion> region{};  // ends first

    std::span<std::byte> span() const { return {bytes.data(), kBlockBytes}; }
  };

  bs::Status Begin(const RdmaPath& path, int numa_node);
  bs::Result<Memory> Register(VerbsDevice::Access access, int numa_node) const;
  bs::Status ReadOnce(uint32_t size_bytes, bs::Duration limit);
  bs::Status AwaitOne(bs::TimePoint deadline);
  bs::Status Wrong(bs::StatusCode code, const std::string& what) const;

  const std::shared_ptr<VerbsDevice> device_;
  const RdmaPort port_;
  const bs::Executor* const clock_;
  RdmaToken token_{};  // the bytes of the block follow from it
  std::string offer_;
  Memory block_;                           // the other end reads it
  Memory landing_;                         // READs of this end fill it
  std::unique_ptr<QueuePair> queue_pair_;  // ends before the memory
  // The other end's.
  RdmaToken peer_token_{};
  uint64_t peer_address_ = 0;
  uint32_t peer_key_ = 0;
};

}  // namespace ps
