// Workers over the application's own store.
#pragma once

#include <memory>

#include "node/worker/worker_node.h"
#include "node/worker/wrapped_store.h"

namespace bs::node {

struct StoreWorker {
  std::unique_ptr<WorkerNode> node;
  WrappedStore* store;  // of the node
};

// Makes a worker that has not begun: no operation on the store starts before node->Join().  When it
// has joined, a barrier of the store must follow on every worker before anything else.
// kInvalidArgument if there is no such rank.
Result<StoreWorker> MakeStoreWorker(const Config& config, int32_t rank, WrappedStore::BeginFn begin,
                                    bool blocks);

}  // namespace bs::node
