// Which RDMA device, port and address the connections of a node use.
//
// Blocks while this node's name is looked up.  Thread-safe.
#pragma once

#include <vector>

#include "bytescheduler/config.h"
#include "bytescheduler/status.h"
#include "transport/rdma/rdma_choice.h"

namespace bs::api {

// Chooses by the address that this node shows to the others.  kUnavailable, or kInvalidArgument for
// a setting, says which step failed and what to do.
Result<ps::RdmaChoice> ChooseRdma(const Config& config, const std::vector<ps::RdmaDevice>& devices);

}  // namespace bs::api
