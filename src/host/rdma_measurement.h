// RdmaMeasurement: an end of a measurement of READs, for rooms that do not know the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "base/status.h"
#include "base/types.h"
#include "config/config.h"

namespace ps {
class RdmaProbe;  // transport/rdma/rdma_probe.h, which has the promises
}

namespace bs::host {

// Confined to one thread.
class RdmaMeasurement {
 public:
  // With the device that this node would use.  Loads libibverbs; blocks while this node's name is
  // looked up, and a little for the device.  Errors are those of UseRdma (host/rdma.h) and of the
  // probe.
  static Result<std::unique_ptr<RdmaMeasurement>> Open(const Config& config);
  // `clock` is that of the probe.
  RdmaMeasurement(std::unique_ptr<LoopThread> clock, std::unique_ptr<ps::RdmaProbe> probe);
  RdmaMeasurement(const RdmaMeasurement&) = delete;
  RdmaMeasurement& operator=(const RdmaMeasurement&) = delete;
  ~RdmaMeasurement();

  static uint32_t block_bytes();
  const std::string& offer() const;
  Status Join(const std::string& offer);  // blocks a little, for the device
  struct Times {
    uint32_t reads = 0;
    Duration median{};
  };
  // Blocks for at most twice `limit`.  kInvalidArgument unless the size is that of a READ, and
  // there are some.
  Result<Times> Read(uint32_t size_bytes, uint32_t most_reads, Duration limit);

 private:
  const std::unique_ptr<LoopThread> clock_;  // it runs nothing
  const std::unique_ptr<ps::RdmaProbe> probe_;
};

}  // namespace bs::host
