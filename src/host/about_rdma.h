// Facts about this host's RDMA devices, for people that search a fault.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "host/about_host.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/verbs.h"

namespace bs::host {

// RDMA as this process finds it.
struct RdmaOfHost {
  std::vector<ps::RdmaDevice> devices;
  Status usable{};                     // why libibverbs opens none of them
  std::optional<ps::RdmaFork> fork{};  // empty: the library is not there
  uint64_t locked_limit_bytes = ps::kNoLockedMemoryLimit;
};

// Loads libibverbs where there are devices.  `root` is the folder above "sys"; a test may make one
// up.  Thread-safe.
RdmaOfHost LookAtRdma(const std::string& root = "");

// The rows of about_host.h whose names begin with "rdma_".
std::vector<HostFact> AboutRdma(const Config& config, const RdmaOfHost& found);

}  // namespace bs::host
