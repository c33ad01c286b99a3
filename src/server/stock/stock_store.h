// StockStore: the dispatcher of a server for the values of stock MXNet workers.
//
// Takes requests apart and spreads keys over the shards' executors, as the dispatcher of native
// requests does; the two share nothing but the executors.  A stock worker can not be told of an
// error: an error fails the job, and then stock workers are ended (see ps::MakeStockEnd).
//
// Confined to the dispatcher's executor; never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "server/optimizer/hosted_updates.h"
#include "server/state/server_options.h"
#include "server/state/shard_handle.h"
#include "server/state/shard_state.h"
#include "server/stock/stock_optimizers.h"
#include "server/stock/stock_shard.h"

namespace bs::server {

// Functions by which a store reaches the other parts of the server.
struct StockWays {
  SendFn send;
  // Posted to the dispatcher, at most once; the owner calls Fail() then.
  std::function<void(Status)> on_failure;
  // Shared with the native keys.
  std::shared_ptr<HostedUpdates> hosted;
  Bounds bounds;
};

class StockStore {
 public:
  // `dispatcher` and the shards' executors must outlive this.
  StockStore(const ServerOptions& options, Executor* dispatcher,
             const std::vector<ServerShard>& shards, StockWays ways, const Logger& log);

  // A request for values.  A request of a peer that is no worker of the job is dropped with a line
  // in the log.  A request of a worker that violates the protocol fails the job.
  void OnData(ps::Message message);
  // Rounds count workers from now on (command 3).
  void SetSynchronous();
  // float16 is summed in float32 from now on (command 1).
  void SetWide();
  // "1,0.500000" (command 4).
  void SetCompression(const std::string& body, int32_t worker_id);
  // The hosting process updates values from now on (command 0).  Answers the request, then.
  void SetOptimizer(const ps::Message& request);
  // The worker of this id was lost, and another takes its place.
  void OnWorkerVacant(int32_t id);
  // The job has failed: ends the processes of the stock workers, if they have asked for values.
  void Fail(const Status& why);

 private:
  bool IsWorker(int32_t id) const;
  void Drop(const std::string& why);
  ShardHandle<StockShard>* HandleOf(const StockCall& call);
  void Configure(const std::function<void(StockState*)>& change);

  const ServerOptions options_;
  const SendFn send_;
  const Bounds bounds_;
  const StockRange range_;
  const std::function<void(const Status&)> fail_;
  const Logger log_;
  std::vector<ShardHandle<StockShard>> handles_;
  StockOptimizers optimizers_;
  std::unordered_map<uint64_t, size_t> handle_of_;  // by key, since it was first seen
  int num_dropped_ = 0;
  bool used_ = false;
  bool failed_ = false;
};

}  // namespace bs::server
