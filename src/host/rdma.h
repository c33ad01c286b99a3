// Which RDMA device, port and address the connections of a node use.
//
// Blocks while this node's name is looked up.  Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/log.h"
#include "base/numa.h"
#include "base/status.h"
#include "config/config.h"
#include "transport/rdma/rdma_choice.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace bs::host {

// Chooses by the address that this node shows to other nodes.  The message of kUnavailable, or of
// kInvalidArgument for a setting, names the failed step and the remedy.
Result<ps::RdmaChoice> ChooseRdma(const Config& config, const std::vector<ps::RdmaDevice>& devices);

// Has memory and the thread of RDMA near the device, which is on `numa_node` (-1: not known).  The
// log says where that is forbidden.  It changes nothing if `nodes` is a single node, or lacks
// `numa_node`.
void PlaceNear(int numa_node, const std::vector<NumaNode>& nodes, const Logger& log,
               ps::RdmaOptions* options);

// How this node uses the devices of `verbs`, whatever DMLC_ENABLE_RDMA says, where the kernel lets
// it lock `locked_limit_bytes`.  Not ok where it cannot; the message gives the reason and the
// remedy.
Result<ps::RdmaOptions> UseRdma(const Config& config, const std::shared_ptr<ps::Verbs>& verbs,
                                uint64_t locked_limit_bytes, const Logger& log);

// The same with the devices of libibverbs, which it loads, and this process's limit of locked
// memory.
Result<ps::RdmaOptions> UseRdma(const Config& config, const Logger& log);

// How a worker or server uses RDMA; without `verbs` it does not.  Loads libibverbs.  Not ok if RDMA
// is required and cannot be had; the message gives the reason and the remedy.  Where it is only
// allowed, the log says that.
Result<ps::RdmaOptions> MakeRdmaOptions(const Config& config, const Logger& log);

}  // namespace bs::host
