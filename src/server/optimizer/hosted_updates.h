// HostedUpdates: the way from a shard to the process that hosts the server, and back.
//
// Thread-safe.  Calls of the hosting process run on the updater's executor, in the order in which
// they are asked for; `done` runs on the executor that is named with it, never inside the call, and
// is destroyed unrun if the updater's executor ends first.  Never blocks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/executor.h"
#include "base/status.h"
#include "base/unique_function.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/server_updater.h"

namespace bs::server {

// An optimizer as it came, pickled.  The object is its identity: each starts with fresh state.
struct HostedOptimizer {
  std::string pickle;
};

class HostedUpdates {
 public:
  using Done = UniqueFunction<void(Status)>;
  using Optimizer = std::shared_ptr<const HostedOptimizer>;

  explicit HostedUpdates(ServerUpdater updater);

  // True if a process hosts the server.  All below: REQUIRES present().
  bool present() const { return updater_.executor != nullptr; }
  // Puts `optimizer` in force, unless it is in force already.  kInvalidArgument if it is refused.
  void Load(Optimizer optimizer, Executor* back, Done done);
  // Loads `optimizer`, copies `before` (if any) to update.weights and updates these.  The memory of
  // all, `about` included, must stay valid until `done` runs or is destroyed.
  // kFailedPrecondition if it fails.
  void Update(Optimizer optimizer, const ServerUpdate& update, std::span<const std::byte> before,
              Executor* back, Done done);

 private:
  // On the updater's executor.  Keeps `call`'s exceptions from passing.
  template <typename F>
  static Status Try(F call);
  Status Ensure(const Optimizer& optimizer);
  Status Run(const Optimizer& optimizer, const ServerUpdate& update,
             std::span<const std::byte> before);

  const ServerUpdater updater_;
  Optimizer loaded_;  // on the updater's executor
};

// The optimizer of asynchronous keys.  Shared by the dispatcher and the shards.
struct OptimizerInForce {
  std::shared_ptr<const OptimizerSpec> native;  // null: only the hosting process can
  HostedUpdates::Optimizer hosted;              // null: none came
  bool any() const { return native || hosted; }
};

}  // namespace bs::server
