// The library of a job whose sums of tensors on GPUs NCCL makes.
#pragma once

#include "base/status.h"
#include "config/config.h"
#include "node/worker/collective_worker.h"

namespace bs::node {

// Loads NCCL and NVIDIA's driver.  Their errors are those of the function.
Result<MakeLibraryFn> FindNccl(const Config& config);

}  // namespace bs::node
