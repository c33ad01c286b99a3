// Which RDMA device, port and address the connections of a node use.
//
// Blocks while this node's name is looked up.  Thread-safe.
#pragma once

#include <vector>

#include "base/log.h"
#include "base/numa.h"
#include "bytescheduler/config.h"
#include "bytescheduler/status.h"
#include "transport/rdma/rdma_choice.h"
#include "transport/rdma/rdma_options.h"

namespace bs::api {

// Chooses by the address that this node shows to the others.  kUnavailable, or kInvalidArgument for
// a setting, says which step failed and what to do.
Result<ps::RdmaChoice> ChooseRdma(const Config& config, const std::vector<ps::RdmaDevice>& devices);

// Has memory and the thread of RDMA near the device, which is on `numa_node` (-1: not known).  The
// log says where that is forbidden.  No more than one of `nodes`, or another: changes nothing.
void PlaceNear(int numa_node, const std::vector<NumaNode>& nodes, const Logger& log,
               ps::RdmaOptions* options);

// How a worker or server uses RDMA; without `verbs` it does not.  Loads libibverbs.  Not ok if
// RDMA is required and cannot be had; the message says why and what to do.  Where it is only
// allowed, the log says that.
Result<ps::RdmaOptions> MakeRdmaOptions(const Config& config, const Logger& log);

}  // namespace bs::api
