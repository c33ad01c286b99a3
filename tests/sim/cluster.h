// Cluster: a whole job in one thread - scheduler node, servers, workers - on simulated time and
// network, judged after each step.
//
// Coordinator, Member, Server, Worker, Core and KvWorker are the real ones; the wiring is that of
// src/node's nodes.  Deterministic: the same options and seed give the same steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "membership/coordinator/peer_table.h"
#include "membership/member/member_table.h"
#include "membership/member/neighbours.h"
#include "protocol/rules.h"
#include "ps/message.h"
#include "server/state/server_options.h"
#include "sim/journal.h"
#include "sim/script.h"
#include "sim/sim_network.h"
#include "trace/trace.h"

namespace bs::sim {

// Something that befalls one node in the middle of the job, with everyone in it.
struct Event {
  ps::Role role = ps::Role::kWorker;
  // The rank of a worker or server.  If that worker has finished by then, a server dies instead.
  int32_t rank = 0;
  uint64_t after_callbacks = 0;  // of all workers together
  // The event comes behind that number of requests and responses of kReady too.
  uint64_t after_ready_messages = 0;
  uint64_t after_beside = 0;  // between workers of a host; 0: no condition
  // If not empty, the worker says goodbye with it.  A server that is meant instead vanishes.
  std::string reason{};
};

// Rank 0 decides anew about partitions and credit.
struct Change {
  uint64_t after_callbacks = 0;  // of all workers together
  uint64_t partition_bytes = 64;
  uint64_t credit_bytes = 64;
};

// A worker vanishes in the middle of the job, and another takes its place.
struct Loss {
  int32_t rank = 0;              // nothing happens if the worker is done
  uint64_t after_callbacks = 0;  // of all workers together, those that vanished too
  Duration until_next{};         // starts
  bool lives = false;            // it is only cut off, for longer than it is waited for
};

// A worker or server vanishes, perhaps before all nodes are there.
struct EarlyDeath {
  ps::Role role = ps::Role::kWorker;
  int32_t index = 0;                     // of its role, in the order of ports
  Duration at{};                         // since the cluster was made
  std::optional<Duration> until_next{};  // another starts then; empty: none does
};

// All of them hold.
inline const protocol::Rules kRules{};

struct ClusterOptions {
  int32_t num_workers = 1;
  int32_t num_servers = 1;
  uint64_t dispatcher_bytes = 0;
  uint64_t adopted_bytes = 1;
  int32_t num_shards = 1;  // of each server
  uint64_t partition_bytes = 64;
  bool mixed_partitions = false;  // each worker is set to another size; rank 0's counts
  uint64_t credit_bytes = 64;
  uint64_t together_bytes = 0;
  bool priority_order = true;
  uint64_t early_bytes = kEarlyBytes;
  uint64_t small_tensor_bytes = kSmallTensorBytes;
  Urgency urgency = Urgency::kCaller;
  bool trains = false;                 // the scripts, with the keys' priorities
  std::optional<int32_t> silent_rank;  // its script does not say in which order it calls
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  uint64_t max_backlog_bytes = uint64_t{1} << 30U;
  int64_t max_staleness = -1;
  // A library sums the dense keys of floats, in the order of this leader; nothing: servers do.
  std::optional<GrantOptions> grants{};
  uint64_t most_waiting = 1;  // operations of a key that a worker calls ahead
  Duration longest_pause{};
  Duration retry_interval = std::chrono::milliseconds(100);
  SimNetworkOptions network;
  std::vector<KeyPlan> keys;
  // The hosts of workers, by the order of their ports; then workers of a host add up.  Empty: all
  // hosts are unknown.
  std::vector<int32_t> hosts;
  std::vector<int32_t> server_hosts;  // the same of servers; empty: another host
  uint64_t least_added_bytes = 0;     // larger tensors are added up
  Duration starts_within = std::chrono::milliseconds(50);
  std::optional<Event> death;  // it vanishes
  std::optional<EarlyDeath> early_death;
  std::optional<Event> outage;  // its connections break and come back in time; no scheduler node
  std::vector<Change> changes;  // in the order in which they are due
  // Workers that vanish, each followed by another with the same script; in the order in which they
  // are due.  With asynchronous keys only.
  std::vector<Loss> losses;
  // Those that a test takes back are its own; not owned.
  const protocol::Rules* rules = &kRules;
  ps::PeerTable test_peers;      // of the scheduler node
  ps::MemberTable test_members;  // of each worker and server
  ps::NeighbourTable test_neighbours;
  std::vector<trace::Trace*> traces;  // empty, or one for each worker, not owned
};

// A random cluster; the same for the same seed.
ClusterOptions DrawCluster(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawDeath(uint64_t seed);
// Most keys of float32 travel coded, also their sums; rank 0 of most jobs
// cuts keys anew, and a third of the jobs lose a node.
ClusterOptions DrawCoded(uint64_t seed);
// The same where workers give keys back, at any time; a third of the jobs lose a node.
ClusterOptions DrawCodedGivingBack(uint64_t seed);
// The same with a worker that says goodbye in the middle of the job, with a reason.
ClusterOptions DrawGoodbye(uint64_t seed);
// The same with a worker or server that dies while the nodes meet, or about then.
ClusterOptions DrawEarlyDeath(uint64_t seed);
// The same with asynchronous keys.
ClusterOptions DrawAsync(uint64_t seed);
// The same with asynchronous keys and a node that dies.
ClusterOptions DrawAsyncDeath(uint64_t seed);
// One with asynchronous keys whose workers are lost and replaced.
ClusterOptions DrawRejoin(uint64_t seed);
// One with priorities that contradict the order in which keys become ready, and long enough that
// all workers get to use the measured ones.
ClusterOptions DrawTraining(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawTrainingDeath(uint64_t seed);
// One whose rank 0 decides anew, at any moment, how tensors are cut.
ClusterOptions DrawTuning(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawTuningDeath(uint64_t seed);
// The same, where workers give keys back and take them again, each at any time.
ClusterOptions DrawGivingBack(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawGivingBackDeath(uint64_t seed);
// One whose dense keys of floats are summed by a library.
ClusterOptions DrawGrants(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawGrantsDeath(uint64_t seed);
// DrawGivingBack, with hosts of three, one and two workers that add up.
ClusterOptions DrawHosts(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawHostsDeath(uint64_t seed);
// The same with a worker that says goodbye in the middle of the job, with a reason.
ClusterOptions DrawHostsGoodbye(uint64_t seed);
// The three above, of whose keys of float32 most travel coded.
ClusterOptions DrawCodedHosts(uint64_t seed);
// DrawHosts, with a library on each host, and servers between them.
ClusterOptions DrawHostGrants(uint64_t seed);
// The same with a node that dies.
ClusterOptions DrawHostGrantsDeath(uint64_t seed);
// A small job of these hosts.
ClusterOptions DrawSmallHosts(uint64_t seed);
// One line that says what was drawn.
std::string Describe(const ClusterOptions& options);

struct Report {
  std::vector<Journal::Problem> problems;  // empty: every promise was kept
  uint64_t trace_hash = 0;
  uint64_t steps = 0;
  std::vector<std::map<Key, Priority>> priorities;  // by rank; of each key's latest push
  uint64_t cuts = 0;                                // how often keys were cut anew, of all keys
  bool died_while_changing = false;  // a key was in one cut at some workers, in another at others
  uint64_t replaced = 0;             // workers that got the place of a lost one
  bool died = false;                 // a node was killed
  bool made_good = false;            // the job ended well though a node died
  uint64_t forgotten = 0;            // keys that all workers had given back, each time
  uint64_t put_off = 0;              // requests that servers did not take for want of room
  uint64_t library_sums = 0;         // operations
  uint64_t library_pieces = 0;
  uint64_t library_copied_bytes = 0;
  uint64_t ready_messages = 0;  // requests and responses of kReady
  uint64_t copies = 0;          // contributions that stand for several workers
  uint64_t beside = 0;          // messages between workers of a host

  bool Has(Broken kind) const;
  std::string ToString() const;
};

// Runs a job from its first node to its last goodbye.  `trace`, if not empty, gets every event.
Report RunCluster(const ClusterOptions& options, uint64_t seed, const Journal::Trace& trace = {});

}  // namespace bs::sim
