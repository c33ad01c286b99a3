// PsWorkerOptions: a worker's options and those of its back end, which tests set together.
#pragma once

#include "backend/ps/ps_backend.h"
#include "bytescheduler/worker.h"

namespace bs::worker {

struct PsWorkerOptions : WorkerOptions, PsBackendOptions {};

}  // namespace bs::worker
