// The nodes of a simulated cluster, wired as src/node wires real ones.
//
// Everything runs in the simulator's one thread.  A node is made, started, and in the end its
// member is destroyed; the clock must run on after that, before the node goes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/collective/fake_collective.h"
#include "backend/host/host_backend.h"
#include "backend/ps/ps_backend.h"
#include "membership/coordinator/peer_table.h"
#include "membership/member/member_table.h"
#include "membership/member/neighbours.h"
#include "protocol/bodies.h"
#include "ps/membership.h"
#include "server/server.h"
#include "sim/journal.h"
#include "sim/script.h"
#include "sim/sim_executor.h"
#include "sim/sim_network.h"
#include "worker/ps_worker_options.h"
#include "worker/worker.h"

namespace bs::sim {

class StockLedger;

// State that all nodes of a job share.
struct Job {
  SimClock* clock;
  SimNetwork* network;
  Journal* journal;
  ps::MembershipOptions membership;
  ps::PeerTable peers{};      // of the scheduler node
  ps::MemberTable members{};  // of each worker and server
  ps::NeighbourTable neighbours{};
  std::optional<std::string> victim{};  // "lost worker 1", once it was killed
  bool finished = false;                // the scheduler node has, in good order
  // For each round of each key: how often the layout had changed, as the first push says.
  std::map<std::pair<Key, Round>, uint32_t> cuts{};
  // Keys that all workers have given back, and the layout version from which on they go on.
  std::set<std::pair<Key, uint32_t>> forgotten{};
  bool stock = false;             // its workers are MXNet's own, who tell servers to stop
  StockLedger* ledger = nullptr;  // of such a job, if workers are replaced
  // ClusterOptions.
  std::vector<int32_t> hosts{};
  std::vector<int32_t> server_hosts{};
  uint64_t least_added_bytes = 0;
  // Contributions of hosts: key, round, partition, layout version and host; the rank and the
  // sequence of the push.
  std::map<std::tuple<Key, Round, uint32_t, uint32_t, int32_t>, std::pair<int32_t, uint64_t>>
      copies{};
  uint64_t beside = 0;  // messages between workers of a host
  // The library of so many workers, of which the first has this rank.  It sums the dense keys of
  // floats; empty: servers do.
  std::function<backend::collective::FakeWorld*(int32_t first_rank, size_t num_ranks)> library_of{};
  uint64_t ready_messages = 0;  // requests and responses of kReady that were sent
};

// A Member with its executor and transport.
class MemberNode {
 public:
  MemberNode(Job* job, ps::Role role, int32_t index);
  MemberNode(const MemberNode&) = delete;
  MemberNode& operator=(const MemberNode&) = delete;
  virtual ~MemberNode() = default;

  void Start(Duration delay);
  void Kill();
  void CutOff(Duration duration);
  // From now on it may fail, with a text that contains `part`, or that of an earlier call.
  void AllowFailure(const std::string& part) { may_fail_.push_back(part); }
  // Takes the network away, with every frame in it.
  void DestroyMember();

  int32_t rank() const { return rank_; }  // -1 before it is in the job
  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }  // as others name it
  bool ready() const { return rank_ >= 0; }
  // Said goodbye, and was heard.
  bool left_well() const { return left_well_; }
  // Nothing more comes from it.
  bool over() const { return over_ || killed_; }
  bool killed() const { return killed_; }
  const std::optional<Status>& failure() const { return failure_; }

 protected:
  virtual void OnReady() = 0;
  virtual void OnMessage(ps::Message message) = 0;
  virtual void OnWorkerLeft(int32_t rank, const Status& why) = 0;
  virtual void OnWorkerVacant(int32_t id, bool native) = 0;
  virtual void OnFailure(const Status& why) = 0;
  virtual void OnShutdown() = 0;

  void Send(ps::Message message);
  void JoinFinalBarrier() { member_->JoinFinalBarrier(); }
  // Says goodbye if the job is well, then closes and is over.
  void LeaveAndClose(const std::string& reason = {});
  void CloseMember();
  void Failed(const Status& why);

  Job* const job_;
  std::string name_;
  std::string address_;
  // REQUIRES: the node is in the job.
  job::View ViewOf(job::Role role) const;

  SimExecutor io_;
  uint64_t incarnation_ = 0;
  uint64_t number_ = 0;  // of the job

 private:
  std::vector<ps::Node> nodes_;  // in the list
  int32_t rank_ = -1;
  bool leaving_ = false;
  bool left_well_ = false;
  bool over_ = false;
  bool killed_ = false;
  std::optional<Status> failure_;
  std::vector<std::string> may_fail_;
  std::unique_ptr<ps::Transport> transport_;
  std::unique_ptr<ps::Member> member_;
};

class ServerNode final : public MemberNode {
 public:
  // Fills in the rank of `options`.  `rules` outlives this.
  ServerNode(Job* job, int32_t index, const ServerOptions& options, int32_t num_shards,
             const protocol::Rules& rules);
  // Requests that it did not take for want of room.
  uint64_t put_off() const { return put_off_; }

 private:
  void OnReady() override;
  void OnMessage(ps::Message message) override;
  void OnWorkerLeft(int32_t rank, const Status& why) override;
  void OnWorkerVacant(int32_t id, bool native) override;
  void OnFailure(const Status& why) override;
  void OnShutdown() override { LeaveAndClose(); }

  const ServerOptions options_;
  const protocol::Rules& rules_;
  std::vector<std::unique_ptr<SimExecutor>> shards_;
  uint64_t put_off_ = 0;
  SimExecutor updater_;
  std::unique_ptr<Server> server_;
};

class WorkerNode final : public MemberNode {
 public:
  // Fills in the ranks of the options.  `rules` outlives this.
  WorkerNode(Job* job, int32_t index, const worker::PsWorkerOptions& options,
             const ScriptOptions& script, uint64_t most_in_flight, const protocol::Rules& rules);

  const Script* script() const { return script_ ? &*script_ : nullptr; }
  Script* script() { return script_ ? &*script_ : nullptr; }
  // At most the largest credit with its reserve for small partitions, or one partition, is in
  // flight to each server: by the Core's count and on the wire.
  void CheckCredit();
  // With which priority each key was pushed last.
  const std::map<Key, Priority>& priorities() const { return priorities_; }
  // How often each key had been cut anew, as its latest push says.
  const std::map<Key, uint32_t>& cuts() const { return cuts_; }
  // Decides, as rank 0.
  void Retune(uint64_t partition_bytes, uint64_t credit_bytes);
  // Leaves in the middle of everything.
  void GiveUp(const std::string& reason);
  // Ends what is left, for a cluster that is taken down early.
  void Close();
  // The library, if there is one, loses this worker.
  void LeaveLibrary();

 private:
  void OnReady() override;
  void OnMessage(ps::Message message) override;
  void OnWorkerLeft(int32_t rank, const Status& why) override;
  void OnWorkerVacant(int32_t, bool) override {}
  void OnFailure(const Status& why) override;
  void OnShutdown() override;
  void MakeBackend();
  // The back end of a library of all workers, or of those of a host.
  void MakeCollective(std::unique_ptr<backend::Backend> link);
  void Transmit(ps::Message message);
  void CheckCopy(const test::Asked& push);
  void CheckCut(const test::Asked& push);
  void Finish(const std::string& reason = {});

  worker::PsWorkerOptions options_;
  ScriptOptions script_options_;
  const protocol::Rules& rules_;
  const uint64_t most_in_flight_;
  SimExecutor thread_;  // "bs-worker"
  std::unique_ptr<backend::Backend> backend_;
  backend::PsBackend* link_ = nullptr;    // of it, or itself
  backend::HostBackend* host_ = nullptr;  // itself, if workers of the host add up
  backend::collective::FakeWorld* library_ = nullptr;
  int32_t place_ = 0;  // in the library
  std::unique_ptr<Worker> worker_;
  std::optional<Script> script_;
  bool closing_ = false;
  bool closed_ = false;
  // Pushes sent and not acknowledged: by server, sequence to bytes; and their sum.
  std::vector<std::map<uint64_t, uint64_t>> unacknowledged_;
  std::vector<uint64_t> unacknowledged_bytes_;
  uint64_t last_push_ = 0;  // its sequence
  std::map<Key, Priority> priorities_;
  std::map<Key, uint32_t> cuts_;
};

}  // namespace bs::sim
