// ServerThreads: the threads of a server beside bs-io, one for each shard and one for the updater.
//
// These threads and bs-io post to each other, so none of them can end last.  Therefore each thread
// ends before its executor goes: an executor lives as long as this object, and destroys the tasks
// that come after the end of its thread.
//
// Not thread-safe: its owner makes one call at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/loop_thread.h"
#include "node/shard_places.h"
#include "server/server.h"

namespace bs::node {

class ServerThreads {
 public:
  // Starts "bs-updater".  REQUIRES: called at most once.
  Executor* StartUpdater();
  // Starts a thread "bs-shard-<node>.<index>" for each place, in the order of `places`.  REQUIRES:
  // called at most once.
  std::vector<ServerShard> StartShards(std::span<const ShardPlace> places);
  // Blocks until every shard has run the tasks that came before this call.  REQUIRES: End was not
  // called.
  void AwaitShards() const;
  // Ends the updater, whose running call may take its time, and then the shards.  Blocks.
  void End();

 private:
  std::vector<std::unique_ptr<LoopThread>> shards_;
  std::unique_ptr<LoopThread> updater_;  // null: there is no updater
};

}  // namespace bs::node
