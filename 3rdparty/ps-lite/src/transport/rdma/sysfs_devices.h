// RDMA devices as the kernel shows them in files: ports, addresses, interfaces, NUMA nodes.
//
// Nothing here opens a device.  Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/verbs.h"

namespace ps {

// All devices, by name.  Facts that only an open device tells are 0.  Addresses that the kernel
// does not let this process read are left out: a container may see some of them only.  `root` is
// the folder above "sys".
std::vector<RdmaDevice> DevicesInFiles(const std::string& root = "");

}  // namespace ps
