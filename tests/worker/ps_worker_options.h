// PsWorkerOptions: a worker's options and those of its back end, which tests set together.
#pragma once

#include <memory>

#include "backend/ps/ps_backend.h"
#include "worker/worker.h"

namespace bs::worker {

struct PsWorkerOptions : WorkerOptions, backend::PsBackendOptions {
  const job::View& view() const { return *WorkerOptions::view; }
  void SetView(const job::View& view) {
    backend::PsBackendOptions::view = WorkerOptions::view = std::make_shared<const job::View>(view);
  }
};

}  // namespace bs::worker
