// LeaveFor: the goodbye of a worker whose process has ended in good order without a goodbye.
#pragma once

#include <string>

#include "base/status.h"
#include "config/config.h"

namespace bs::node {

// Says goodbye to the scheduler node for the worker that had `place` (ps::PlaceOf).  The
// connections of a process that ended break, and one second later a node without a goodbye is lost.
// Blocks for kLinger at most, with and without success.  kInvalidArgument if `place` is none.
Status LeaveFor(const Config& config, const std::string& place);

}  // namespace bs::node
