// JobState: the state that the parts of the scheduler node share.
//
// The parts are Rendezvous (before the job), Places (holders and their successors), Detector
// (losses), Shutdown (goodbyes and the end) and Inbox (messages); each owns the state that it alone
// needs.  The comments name the only part that changes a shared field.
//
// Confined to the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/limited_log.h"
#include "membership/coordinator/barriers.h"
#include "membership/coordinator/outbox.h"
#include "membership/coordinator/peers.h"
#include "membership/coordinator/reliable_broadcast.h"
#include "membership/coordinator/roster.h"
#include "membership/stock/resends.h"
#include "membership/task_scope.h"
#include "ps/membership.h"
#include "wire/control.h"

namespace ps {

enum class Phase {
  kGathering,  // nodes register
  kRunning,    // all nodes are there
  kEnding,     // the nodes are notified of the end
  kFinished,   // all nodes that can be reached know it
};

// A node that asks for a place.
struct Arrival {
  const Node& node() const { return registrant.node; }

  Registrant registrant{};
  bool native = true;
  int32_t rank = -1;      // the wanted one, -1: any; of an attached worker that of its stock worker
  bool attaches = false;  // it is an attached worker
  bool repeat = false;    // it has registered before, and waits
  bool yields = false;    // MemberBody::yields
};

struct JobState {
  JobState(const MembershipOptions& job_options, Transport* job_transport, bs::Executor* executor,
           const bs::Logger& logger, PeerTable table, Peers::Callbacks callbacks)
      : options(job_options),
        transport(job_transport),
        log(logger),
        scope(executor),
        limited_log(executor, logger),
        outbox(options.job, options.root, transport),
        roster(options.num_workers, options.num_servers),
        peers(std::move(table), std::move(callbacks)),
        barriers(options.num_workers),
        broadcast(&scope, options.retry_interval,
                  [this](int32_t peer, const Meta& meta) { outbox.Send(peer, meta); }),
        heartbeat(&scope) {}
  JobState(const JobState&) = delete;
  JobState& operator=(const JobState&) = delete;
  ~JobState() = default;

  bool running() const { return phase == Phase::kRunning; }
  bool over() const { return phase == Phase::kEnding || phase == Phase::kFinished; }
  // The status for nodes that register after the job has ended.
  bs::Status Over() const {
    return verdict.ok() ? bs::Status::Unavailable("the job is over") : verdict;
  }

  // Logs a message that is not taken.
  void Drop(const Message& message, const std::string& why) {
    limited_log.Warning("dropped a message from " + DescribeSender(message.peer) + ": " + why);
  }
  // `first`: the node that has the address already.
  void WarnOfSharedAddress(const Node& node, const std::string& first) {
    limited_log.Warning("another process registers at the address of " + first +
                        ": if that one still runs, give each " + std::string(NameOf(node.role)) +
                        " a DMLC_NODE_HOST and DMLC_PORT that no other has");
  }

  const MembershipOptions options;
  Transport* const transport;
  const bs::Logger log;
  TaskScope scope;
  bs::LimitedLog limited_log;
  Outbox outbox;

  Phase phase = Phase::kGathering;      // Rendezvous begins the job, Shutdown ends it
  bs::Status verdict;                   // of the job that ends; Shutdown
  Roster roster;                        // Rendezvous; Places puts successors into it
  std::map<int32_t, Registrant> early;  // attached workers that wait, by rank; Rendezvous
  Peers peers;                          // docs/design/membership.md: which part applies which event
  Barriers barriers;
  Resends resends;  // for stock peers
  ReliableBroadcast broadcast;
  Repeater heartbeat;  // while the job runs: for silence and stragglers
  // Ends the job with this verdict (Shutdown::End); set before anything runs.
  std::function<void(const bs::Status&)> end;
};

}  // namespace ps
