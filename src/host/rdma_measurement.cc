// Opens the transport's probe on the device of this node.
#include "host/rdma_measurement.h"

#include <utility>

#include "host/rdma.h"
#include "transport/rdma/rdma_probe.h"

namespace bs::host {

Result<std::unique_ptr<RdmaMeasurement>> RdmaMeasurement::Open(const Config& config) {
  const Result<ps::RdmaOptions> options = UseRdma(config, Logger("", LogLevel::kOff));
  if (!options.ok()) return options.status();
  auto clock = std::make_unique<LoopThread>("bs-doctor");
  Result<std::unique_ptr<ps::RdmaProbe>> probe = ps::RdmaProbe::Open(options.value(), clock.get());
  if (!probe.ok()) return probe.status();
  return std::make_unique<RdmaMeasurement>(std::move(clock), std::move(probe.value()));
}

RdmaMeasurement::RdmaMeasurement(std::unique_ptr<LoopThread> clock,
                                 std::unique_ptr<ps::RdmaProbe> probe)
    : clock_(std::move(clock)), probe_(std::move(probe)) {}

RdmaMeasurement::~RdmaMeasurement() = default;

uint32_t RdmaMeasurement::block_bytes() { return ps::RdmaProbe::kBlockBytes; }

const std::string& RdmaMeasurement::offer() const { return probe_->offer(); }

Status RdmaMeasurement::Join(const std::string& offer) { return probe_->Join(offer); }

Result<RdmaMeasurement::Times> RdmaMeasurement::Read(uint32_t size_bytes, uint32_t most_reads,
                                                     Duration limit) {
  if (size_bytes == 0 || size_bytes > block_bytes() || most_reads == 0 ||
      limit <= Duration::zero()) {
    return Status::InvalidArgument("want READs of 1 to " + std::to_string(block_bytes()) +
                                   " bytes, at least one, and some time");
  }
  const Result<ps::RdmaProbe::Times> found = probe_->Read(size_bytes, most_reads, limit);
  if (!found.ok()) return found.status();
  return Times{.reads = found.value().reads, .median = found.value().median};
}

}  // namespace bs::host
