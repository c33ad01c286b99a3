// The library of a job whose dense sums MPI makes.
#pragma once

#include "base/status.h"
#include "config/config.h"
#include "node/worker/collective_worker.h"

namespace bs::node {

// Loads the MPI library of the launcher that has started this process.  kFailedPrecondition: no
// launcher of MPI has started the workers.  Errors of the library are those of the function.
Result<MakeLibraryFn> FindMpi(const Config& config);

}  // namespace bs::node
