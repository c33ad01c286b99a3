// Starts the threads of a server and ends them in order.
#include "node/server_threads.h"

#include <string>

#include "base/numa.h"
#include "base/run_on.h"

namespace bs::node {

Executor* ServerThreads::StartUpdater() {
  updater_ = std::make_unique<LoopThread>("bs-updater");
  return updater_.get();
}

std::vector<ServerShard> ServerThreads::StartShards(std::span<const ShardPlace> places) {
  std::vector<ServerShard> shards;
  for (const ShardPlace& place : places) {
    const std::string name =
        "bs-shard-" + std::to_string(place.node) + "." + std::to_string(place.index);
    // A system that refuses to pin (some containers) runs the shard wherever it likes.
    shards_.push_back(std::make_unique<LoopThread>(
        name,
        LoopOptions{.at_start = [core = place.core] { static_cast<void>(PinThisThread(core)); }}));
    shards.push_back({shards_.back().get(), place.node});
  }
  return shards;
}

void ServerThreads::AwaitShards() const {
  for (const auto& shard : shards_) RunOn(shard.get(), [] {});
}

void ServerThreads::End() {
  if (updater_) updater_->End();
  for (const auto& shard : shards_) shard->End();
}

}  // namespace bs::node
