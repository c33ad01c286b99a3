// LeaveFor: the goodbye of a worker whose process has ended in good order without one.
#pragma once

#include <string>

#include "bytescheduler/config.h"
#include "bytescheduler/status.h"
#include "ps/membership.h"

namespace bs::api {

// The place in the job, for LeaveFor in another process of the host.
std::string PlaceOf(const ps::View& view);

// Says goodbye to the scheduler node for the worker that had `place`.  The connections of a process
// that ended break, and one second later a node without a goodbye is lost.  Blocks for kLinger at
// most, with and without success.  kInvalidArgument if `place` is none.
Status LeaveFor(const Config& config, const std::string& place);

}  // namespace bs::api
