// A worker of a job whose dense sums a library of collective operations makes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "backend/collective/collective.h"
#include "backend/ps/ps_backend.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"
#include "config/config.h"
#include "job/view.h"
#include "protocol/grants.h"

namespace bs::node {

// The place of a library in its worker, which outlives the library.
struct LibraryPlace {
  job::SharedView view;
  Executor* executor = nullptr;  // the worker's, which runs the library's callbacks
  // The back end of all other traffic.  It is ready when Collective::Prepare runs, so that ranks
  // can tell each other how they meet.
  backend::Backend* servers = nullptr;
};

// Makes the library of this rank, or says why there is none, with which joining fails.  Runs once,
// on the worker's executor.
using MakeLibraryFn = std::function<Result<std::unique_ptr<backend::collective::Collective>>(
    const LibraryPlace& place)>;

struct LibraryUse {
  Duration deadline{};        // CollectiveOptions::deadline
  bool within_hosts = false;  // the library has the ranks of each host alone
  uint64_t credit_bytes = 0;  // of copies that cross the link then
  protocol::Division division{};
};
LibraryUse UseOf(const Config& config);

// Puts the library before `servers`, the back end of all other traffic.  Server 0 of the job
// grants.
std::unique_ptr<backend::Backend> WithLibrary(const MakeLibraryFn& make_library,
                                              std::unique_ptr<backend::PsBackend> servers,
                                              const job::SharedView& view, Executor* executor,
                                              const LibraryUse& use);

}  // namespace bs::node
