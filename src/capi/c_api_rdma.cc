// The C API's measurement of READs by RDMA.
#include <chrono>
#include <memory>
#include <utility>

#include "bytescheduler/c_api.h"
#include "capi/c_api_guard.h"
#include "config/config.h"
#include "host/rdma_measurement.h"

using bs::Guarded;
using bs::Result;
using bs::Status;
using bs::capi::Overrides;
using bs::capi::Return;
using bs::host::RdmaMeasurement;

struct bs_rdma_probe {
  std::unique_ptr<RdmaMeasurement> probe;
};

bs_rdma_probe* bs_rdma_probe_open(const bs_setting* settings, size_t num_settings,
                                  bs_error* error) {
  bs_rdma_probe* opened = nullptr;
  Return(Guarded([&] {
           const Result<bs::Config> config =
               bs::ConfigFromProcess(Overrides(settings, num_settings));
           if (!config.ok()) return config.status();
           Result<std::unique_ptr<RdmaMeasurement>> probe = RdmaMeasurement::Open(config.value());
           if (!probe.ok()) return probe.status();
           opened = new bs_rdma_probe{std::move(probe.value())};
           return Status::Ok();
         }),
         error);
  return opened;
}

void bs_rdma_probe_close(bs_rdma_probe* probe) { delete probe; }

const char* bs_rdma_probe_offer(const bs_rdma_probe* probe) {
  return probe->probe->offer().c_str();
}

int bs_rdma_probe_join(bs_rdma_probe* probe, const char* offer, bs_error* error) {
  return Return(Guarded([&] { return probe->probe->Join(offer); }), error);
}

int bs_rdma_probe_read(bs_rdma_probe* probe, uint32_t size_bytes, uint32_t most_reads, int limit_ms,
                       bs_rdma_reads* found, bs_error* error) {
  return Return(Guarded([&] {
                  const auto times = probe->probe->Read(size_bytes, most_reads,
                                                        std::chrono::milliseconds(limit_ms));
                  if (!times.ok()) return times.status();
                  found->count = times.value().reads;
                  found->median_s = std::chrono::duration<double>(times.value().median).count();
                  return Status::Ok();
                }),
                error);
}
