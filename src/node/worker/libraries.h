// The libraries of collective operations that a job can name with BYTESCHEDULER_COMM, and within
// hosts with BYTESCHEDULER_LOCAL_SUMS.
#pragma once

#include "base/status.h"
#include "config/config.h"
#include "node/worker/collective_worker.h"

namespace bs::node {

// Finds the library that the configuration names; an empty function if it names none.  Errors
// concern the settings and are alike on all ranks.  A library that this host lacks is an error of
// the function, so that this rank joins and all ranks get the reason.
Result<MakeLibraryFn> FindLibrary(const Config& config);

}  // namespace bs::node
