// A launcher's messages to the scheduler node, about workers that cannot speak for themselves.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "config/config.h"

namespace bs::node {

// Says goodbye to the scheduler node for the worker that had `place` (ps::PlaceOf).  The
// connections of a process that ended break, and one second later a node without a goodbye is lost.
// With a `reason` the job fails by it, also if the worker has said goodbye itself.
// Blocks for kLinger at most, with and without success.  kInvalidArgument if `place` is none.
Status LeaveFor(const Config& config, const std::string& place, const std::string& reason = {});

// Tells the scheduler node that `workers` live which have not registered (ps::Vouch).  Blocks for
// kLinger at most, with and without success.
void VouchFor(const Config& config, int32_t workers, uint64_t token);

}  // namespace bs::node
