// Rendezvous: nodes register, wait for the others, and begin the job together (PROTOCOL.md).
//
// Before the job begins it gives places in the roster; while the job runs it hands registrations to
// Places; afterwards it refuses them.
//
// Confined to the executor of the job.  Bounded by the workers and servers of the job.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "membership/coordinator/detector.h"
#include "membership/coordinator/job_state.h"
#include "membership/coordinator/places.h"
#include "membership/coordinator/refusals.h"
#include "membership/coordinator/waiting_nodes.h"

namespace ps {

class Rendezvous {
 public:
  // All outlive it.
  Rendezvous(JobState* job, Refusals* refusals, Detector* detector, Places* places);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous() = default;

  // Stops the reports of missing nodes.
  void StopReports() { report_.Stop(); }
  // The longest wait of a job, in time-outs.
  static constexpr int kMostTimeouts = 3;
  // Reports missing nodes from now on, and ends the job at the time-out.  If launchers vouch for
  // all missing nodes, it ends kMostTimeouts of these after the start instead.  Calls `begun` once
  // all nodes are there and have the list.
  void Start(bs::Task begun);
  // A message from a node without an id.
  void OnMessage(const Message& message);
  // The connections to nodes that wait.
  WaitingNodes* waiting() { return &waiting_; }
  // The job ends before it began: ends stock nodes, and returns the peers of native ones.
  std::vector<int32_t> End();
  // The peers of registered native nodes that may not know the job's number, with the numbers of
  // their registrations.
  std::vector<std::pair<int32_t, uint64_t>> Registering();

 private:
  // A launcher's word about workers that live and have not registered.
  struct Voucher {
    int32_t workers = 0;
    bs::TimePoint at{};
  };

  void OnVouch(const Message& message);
  // Returns for how many workers the launchers vouch, by words that are not too old.
  int64_t CountVouched();
  // True if launchers vouch for all nodes that are missing.
  bool AllLive();
  void OnDeadline();
  // Refuses a node that speaks another version or has other settings.
  void OnRegistration(const Node& node, const Extension& extension, const MemberBody& body,
                      bool repeat);
  void Register(const Arrival& arrival);
  void Gather(const Arrival& arrival);
  // Warns if another process has registered with the address.
  void WarnIfShared(const Arrival& arrival);
  void OnAdded(const Arrival& arrival);
  void Attach(const Arrival& arrival);
  void AttachEarly(const Arrival& arrival);
  // True if a refused node may get the place of a node that is gone.  The node registers again, or
  // a timer here repeats it for a stock node.  Opens missing connections to nodes of its role,
  // which show if they are alive.
  bool ComesAgain(const Arrival& arrival);
  void OnGone(const Node& node, const std::string& why);
  static bs::Status ServersAreStock(const Node& worker, const Node& server);
  // Refuses the workers that leave their places where a server is MXNet's own.
  void RefuseYielding(const Node& server);
  void Complete();
  void Report();
  std::string Refused() const { return refusals_->Latest() + waiting_.Unreached(); }

  JobState* const job_;
  Refusals* const refusals_;
  Detector* const detector_;
  Places* const places_;
  WaitingNodes waiting_;
  bool logs_ = true;  // the next report
  Repeater report_;   // names missing nodes
  bs::Task begun_;
  std::map<std::string, Node> yielding_;  // by "host:port": workers of MemberBody::yields
  int32_t coming_again_ = 0;
  bs::TimePoint start_{};
  bool held_ = false;                     // the time-out has passed
  std::map<uint64_t, Voucher> vouchers_;  // by token; no more than workers
};

}  // namespace ps
