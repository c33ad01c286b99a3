// Nodes: the only place where executors, transport, membership, server and worker are put together.
//
// Each node is thread-safe and lives on threads of its own.  The functions that make one return at
// once; later failures arrive through its outcome.  Close() blocks for a bounded time and is called
// once, by the destructor if not before.  No other call may run at that time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/numa.h"
#include "bytescheduler/config.h"
#include "bytescheduler/server.h"
#include "bytescheduler/worker.h"
#include "node/kept_memory.h"
#include "node/network.h"
#include "node/node_metrics.h"
#include "node/operation_host.h"
#include "node/outcome.h"
#include "ps/membership.h"
#include "trace/timeline.h"

namespace bs::worker {
class PsBackend;
}

namespace bs::api {

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
  // docs/operate/metrics.md says what each number is; errors are those of Await<Metrics>.
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

// A server: its dispatcher on bs-io, a thread for each shard, and one for the updater if there is
// one.
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
  std::vector<ServerShard> MakeShards(int32_t rank);
  void OpenTimeline(uint64_t job, size_t num_shards, ServerOptions* options, const Logger& log);

  const Config config_;
  const Logger log_;
  Outcome outcome_;
  std::atomic<int32_t> port_ = 0;
  std::atomic<int32_t> rank_ = -1;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ps::Member> member_;  // on bs-io
  ServerUpdater updater_;
  // Found by the thread that makes the server: bs-io may be kept on one.
  const std::vector<NumaNode> nodes_ = DiscoverNumaNodes();
  std::vector<std::unique_ptr<LoopThread>> shard_threads_;
  std::unique_ptr<LoopThread> updater_thread_;
  std::unique_ptr<Timeline> timeline_;  // of server_; may be null
  std::unique_ptr<Server> server_;      // on bs-io; null before the job is complete
  bool closed_ = false;
};

// A training process's end.
class WorkerNode final : public OperationHost {
 public:
  using Done = Worker::Done;

  // wanted_rank >= 0: attaches beside the stock worker of that rank.
  static Result<std::unique_ptr<WorkerNode>> Start(const Config& config, int32_t wanted_rank);
  WorkerNode(const Config& config, const ps::MembershipOptions& options, ps::RdmaOptions rdma);
  WorkerNode(const WorkerNode&) = delete;
  WorkerNode& operator=(const WorkerNode&) = delete;
  ~WorkerNode();

  // Set when every node is there (ok), or when joining failed.
  const Outcome& joined() const { return joined_; }
  // Set when the worker failed for good.
  const Outcome& failure() const { return failure_; }

  // REQUIRES, here and below: joined() is ok.
  int32_t rank() const { return view_.rank; }
  // For LeaveFor in another process.
  std::string place() const;
  int32_t num_workers() const { return view_.num_workers; }
  int32_t num_servers() const { return view_.num_servers; }
  // The host of each worker, by rank: equal numbers are one host (worker::HostsOfWorkers).
  std::vector<int32_t> hosts() const;
  Worker* worker() override { return worker_.get(); }
  bool has_our_servers() const override { return true; }
  void ExpectCallback() override { ++pending_; }
  void EndCallback() override;
  // Runs `visit` on the worker's thread.
  void Visit(Task visit) { network_->io()->Post(std::move(visit)); }
  // KeptMemory::Use; null for memory of less than LeastKeptBytes.
  std::shared_ptr<void> UseMemory(const KeptMemory::Memory& memory, const KeptMemory::OwnFn& own);
  // UINT64_MAX: no device ever uses the framework's memory.
  uint64_t LeastKeptBytes() const;
  // `done` runs on bs-io.
  void Barrier(Done done);
  // See SchedulerNode.
  Result<Metrics> Measure(Duration timeout) const;
  // The latest steps (Worker::Steps); the rules are those of Measure.
  Result<std::vector<StepTime>> Steps(Duration timeout) const;
  // The key's name in a timeline.
  void NameKey(Key key, const std::string& name);
  // Fails the whole job; every node gets `why`.
  void Fail(const std::string& why);

  // Waits up to `drain` for pending operations, fails what is left, leaves the job.
  void Close(Duration drain);

 private:
  void OnReady(Result<ps::View> view, const Config& config);  // on bs-io
  void Begin(const Config& config);                           // on bs-io
  void OnJobFailure(const Status& why);                       // on bs-io
  void TellEveryone(const Status& why);
  void Drain(Duration timeout);
  void Leave();

  const Logger log_;
  Outcome joined_;
  Outcome failure_;
  ps::View view_;  // written before joined_ is set
  std::atomic<bool> closing_ = false;
  std::atomic<int64_t> pending_ = 0;  // callbacks still to come
  bool draining_ = false;             // on bs-io
  Notification drained_;
  Notification left_;
  std::unique_ptr<Network> network_;
  KeptMemory kept_memory_;
  std::unique_ptr<ps::Member> member_;  // on bs-io
  std::unique_ptr<Timeline> timeline_;  // of worker_; may be null
  // On bs-io; null before joined_.
  std::unique_ptr<worker::PsBackend> backend_;  // of worker_
  std::unique_ptr<Worker> worker_;
  bool closed_ = false;
};

}  // namespace bs::api
