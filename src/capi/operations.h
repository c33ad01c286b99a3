// The operations of the C API: one table of their kinds.
#pragma once

#include "base/status.h"
#include "bytescheduler/c_api.h"
#include "node/worker/operation_host.h"

namespace bs::capi {

// kInvalidArgument if there is no such kind, if a field that the kind needs is not set, or if one
// is set that it does not take.
Status CheckOperation(const bs_operation& operation);

// Starts it on the worker of `host`.  kFailedPrecondition if its back end cannot do it.  REQUIRES:
// CheckOperation is ok.
Status StartOperation(const bs_operation& operation, node::OperationHost* host);

}  // namespace bs::capi
