// Workers of jobs with our own servers.
#pragma once

#include <memory>

#include "node/worker/collective_worker.h"
#include "node/worker/worker_node.h"
#include "ps/membership.h"

namespace ps {
struct RdmaOptions;
}  // namespace ps

namespace bs::node {

// Starts a worker that joins the job of the configuration.  wanted_rank >= 0: it attaches beside
// the stock worker of that rank.  Errors concern the settings.
Result<std::unique_ptr<WorkerNode>> StartPsWorker(const Config& config, int32_t wanted_rank);
// Starts a worker with these options of its rendezvous and of RDMA.  `make_library`, if not empty,
// makes the library that sums dense keys of floats.
std::unique_ptr<WorkerNode> StartPsWorker(const Config& config,
                                          const ps::MembershipOptions& options,
                                          ps::RdmaOptions rdma,
                                          const MakeLibraryFn& make_library = {});

}  // namespace bs::node
