// The scheduler node and servers: their executors, transport, membership and server put together.
//
// Each node is thread-safe and lives on threads of its own.  The functions that make a node return
// at once; later failures arrive through its outcome.  Close() blocks for a bounded time and is
// called once, by the destructor if not before.  No other call may run at that time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/numa.h"
#include "config/config.h"
#include "node/network.h"
#include "node/node_metrics.h"
#include "node/outcome.h"
#include "node/server_threads.h"
#include "ps/membership.h"
#include "server/server.h"
#include "trace/timeline.h"

namespace bs::node {

// The scheduler node.
class SchedulerNode {
 public:
  // Waits until it listens, or knows that it cannot (kAlreadyExists: the port is in use).
  static Result<std::unique_ptr<SchedulerNode>> Start(const Config& config);
  SchedulerNode(const Config& config, const ps::MembershipOptions& options);
  SchedulerNode(const SchedulerNode&) = delete;
  SchedulerNode& operator=(const SchedulerNode&) = delete;
  ~SchedulerNode();

  // 0 while it does not listen.
  int32_t port() const { return port_; }
  // Ok when every node has finished in good order.
  const Outcome& outcome() const { return outcome_; }
  // docs/operate/metrics.md describes each number; errors are Await<Metrics>'s.
  Result<Metrics> Measure(Duration timeout) const;
  // Unless the job is over: ends it for all nodes, as `why`.
  void Close(const std::string& why);

 private:
  const Logger log_;
  Outcome outcome_;
  Notification listening_or_over_;
  std::atomic<int32_t> port_ = 0;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ps::Coordinator> coordinator_;  // on bs-io
  bool closed_ = false;
};

// A server: its dispatcher on bs-io, a thread for each shard, and a thread for the updater if the
// server has one.
class ServerNode {
 public:
  // `updater`, if it has functions, gets an executor here.
  static Result<std::unique_ptr<ServerNode>> Start(const Config& config,
                                                   ServerUpdater updater = {});
  ServerNode(const Config& config, const ps::MembershipOptions& options, ps::RdmaOptions rdma,
             ServerUpdater updater);
  ServerNode(const ServerNode&) = delete;
  ServerNode& operator=(const ServerNode&) = delete;
  ~ServerNode();

  // 0 until the job is complete.
  int32_t port() const { return port_; }
  // Ok when the job ended in good order.
  const Outcome& outcome() const { return outcome_; }
  // See SchedulerNode; before the job is complete only "ready", which is 0 then.
  Result<Metrics> Measure(Duration timeout) const;
  // Unless the job is over: fails it for all nodes, as `why`.
  void Close(const std::string& why);

 private:
  // All on bs-io.
  void OnReady(Result<ps::View> view);
  void Begin(const ps::View& view);
  void OnFailure(const Status& why);
  void OnShutdown();
  void CollectMetrics(GiveMetrics give) const;
  void OpenTimeline(size_t num_shards, ServerOptions* options, const Logger& log);

  const Config config_;
  const Logger log_;
  Outcome outcome_;
  std::atomic<int32_t> port_ = 0;
  std::atomic<int32_t> rank_ = -1;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ps::Member> member_;  // on bs-io
  ServerUpdater updater_;
  // Found by the thread that makes the server: bs-io may be kept on a single NUMA node.
  const std::vector<NumaNode> nodes_ = DiscoverNumaNodes();
  ServerThreads threads_;                      // their executors outlive server_
  std::unique_ptr<trace::Timeline> timeline_;  // of server_; may be null
  std::unique_ptr<Server> server_;             // on bs-io; null before the job is complete
  bool closed_ = false;
};

}  // namespace bs::node
