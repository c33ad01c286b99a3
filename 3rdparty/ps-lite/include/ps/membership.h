// Membership: how nodes find each other, get ids and ranks, wait for each other, and notice a loss.
//
// Coordinator is the scheduler node; Member is a worker or a server.  Both speak the rendezvous of
// PROTOCOL.md with native and with stock nodes.  Both belong to their transport's executor: every
// method must be called there, every callback runs there, never inside a call.  None blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace ps {

using StatusCallback = bs::UniqueFunction<void(bs::Status)>;

struct MembershipOptions {
  Role role = Role::kWorker;
  int32_t num_workers = 1;
  int32_t num_servers = 1;
  Address root;            // of the scheduler node
  std::string root_found;  // the address that root.host stands for, for people; may be empty
  std::string bind_host;   // scheduler: listens here instead of on root.host, if not empty
  std::string node_host;   // this node binds and advertises it (the scheduler binds root.host)
  int32_t node_port = 0;   // 0: any free port
  uint64_t link_rate = 0;  // as this node states it (Node::link_rate)
  // Each server is in the process of the worker of its rank, by which texts call it.
  bool servers_in_workers = false;
  // The rank that this node asks for; of an attached worker, that of the stock worker beside it.
  // -1: any.
  int32_t wanted_rank = -1;
  bool attach = false;  // worker only: attach beside a stock worker of the same rank
  // Worker only: kNotFound, instead of the end of the job, if a server is MXNet's own; the process
  // can then join with a stock store.
  bool yields = false;
  // Worker only: it connects to the other workers of its host too, and takes their data.
  bool joins_host = false;
  std::string settings;  // "name=value\n" lines that must be equal on every native node
  uint64_t job = 0;      // scheduler: a number that no other job has; members hear it from there
  bs::Duration rendezvous_timeout{};                          // until all are there; 0: `timeout`
  bs::Duration timeout = std::chrono::seconds(60);            // for a response
  bs::Duration straggler_timeout = std::chrono::minutes(30);  // a living node comes to a barrier
  // Every second report, "waiting for 1 of 2 workers", is printed.
  bs::Duration report_interval = std::chrono::seconds(5);
  bs::Duration heartbeat_interval = std::chrono::seconds(1);
  bs::Duration heartbeat_timeout = std::chrono::seconds(30);  // silent for so long: lost
  bs::Duration reconnect_grace = std::chrono::seconds(1);     // a broken connection may come back
  bs::Duration retry_interval = std::chrono::seconds(1);      // unanswered control requests
  // Calls that miss a worker wait so long for the reason of its goodbye, if that has none: its
  // launcher learns the exit code a moment later.
  bs::Duration reason_patience{};
  // How long the place of a worker that was lost stays free for another; 0: the job fails at once.
  bs::Duration rejoin_timeout{};

  // How long nodes may take to come.
  bs::Duration UntilAllThere() const {
    return rendezvous_timeout > bs::Duration(0) ? rendezvous_timeout : timeout;
  }
};

// The address by which a node's host is known for the whole job; all loopback addresses are one.
std::string HostOf(const Node& node);

// The nodes of the job; valid once ready.
struct View {
  int32_t own_id = kEmpty;
  int32_t rank = -1;
  int32_t num_workers = 0;
  int32_t num_servers = 0;
  uint64_t incarnation = 0;  // of this worker's place; above 0: it was lost and taken again
  uint64_t job = 0;          // the scheduler node's number; 0 if that is MXNet's own
  bool all_native = false;   // no worker is MXNet's own
  std::vector<Node> nodes;
};

class MemberTable;
class NeighbourTable;

// A worker or a server in the job.
class Member {
 public:
  struct Handler {
    // Registered and connected: sent once.  An error names the missing nodes, or why this node was
    // refused.
    std::function<void(bs::Result<View>)> on_ready;
    // A data or command message (not control).  Only from known peers, of this job.
    std::function<void(Message)> on_message;
    // The same as Transport::Handler::place, for data of nodes in the job.
    std::function<std::shared_ptr<Landing>(int32_t peer, const Meta& meta, uint64_t size_bytes)>
        place{};
    // Bytes that a native request announces for its payload: the node reads no more of a payload,
    // but for some 64 KiB.  Servers need it; empty: none.
    std::function<uint64_t(const Extension& request)> announced_bytes{};
    // A worker left in good order (servers get this; nothing more comes from it).  `why`: for calls
    // that miss it.  Sent after MembershipOptions::reason_patience if there is no reason.  With
    // joins_host a worker gets this too, of a worker of its host whose connection stays down.
    std::function<void(int32_t rank, const bs::Status& why)> on_worker_left;
    // A worker was lost and another worker may take its place (servers get this).  Nothing more
    // comes from the lost worker; the next worker of this id begins from the start.
    std::function<void(int32_t id, bool native)> on_worker_vacant{};
    // The job failed: names the peer that was lost.  Sent at most once, before the barriers that
    // the failure ends.
    std::function<void(bs::Status)> on_failure;
    // The job is over in good order; servers end on this.  Sent at most once, before the barriers
    // that this ends.
    std::function<void()> on_shutdown;
  };

  // `transport` (not started) and `executor` must outlive the member.
  Member(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
         const bs::Logger& log);
  // For tests, with other tables of states.
  Member(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
         const bs::Logger& log, const MemberTable& table, const NeighbourTable& neighbours);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Starts the transport, binds, registers.  REQUIRES: called once.
  void Start(Handler handler);
  // Ends when every member of `group` (kWorkerGroup, or kEveryone) called it; native members only
  // count with native members of their kind.  `done`: ok, kUnavailable if a peer was lost,
  // kDeadlineExceeded after options.straggler_timeout naming the group, kCancelled on Close.
  void Barrier(int32_t group, StatusCallback done);
  // Stock command of a stock worker that ends servers (kStopServer): this server joins the final
  // barrier of group 7 and then gets on_shutdown.
  void JoinFinalBarrier();
  // Says goodbye to the scheduler node; then this node may end without a failure.  `reason`: why it
  // leaves early, if it does; calls that miss it say so, and it is cut to kMaxReasonBytes.  `done`
  // always comes: ok, or why no answer came.
  void Leave(const std::string& reason, StatusCallback done);
  // A message of that peer violates the protocol; `what` says how, for people.  A peer with more
  // than 4096 violations in 30 s is lost; bytes that are no message count too.
  void ReportViolation(int32_t peer, const std::string& what);
  // Tells the scheduler node that the whole job failed because of `why`; it tells all nodes.
  void ReportFailure(const bs::Status& why);
  // Sends to a peer of the view; dropped if unknown.  Thread-safe.
  void Send(Message message);
  // No callback comes after this but kCancelled for pending operations, which may come inside this
  // call.  Closes the transport; waiting messages have `linger` to leave.
  void Close(bs::Duration linger);

  const View& view() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

class PeerTable;

// The scheduler node.
class Coordinator {
 public:
  struct Handler {
    // Receiving: `port` is the bound port.
    std::function<void(int32_t port)> on_listening;
    // The job ended: ok when every node finished in good order, else the reason (the
    // missing or lost node).  Sent once, after every reachable node has the news; Close with a
    // linger.
    std::function<void(bs::Status)> on_finished;
  };

  Coordinator(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
              const bs::Logger& log);
  // For tests, with another table of states.
  Coordinator(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
              const bs::Logger& log, PeerTable table);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  void Start(Handler handler);
  // Ends the job with an error for all nodes (Ctrl-C at the scheduler node).
  void Abort(const bs::Status& why);
  // The registered nodes, and how long each has been silent (docs/operate/metrics.md).
  void Measure(bs::Metrics* metrics) const;
  void Close(bs::Duration linger);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ps
