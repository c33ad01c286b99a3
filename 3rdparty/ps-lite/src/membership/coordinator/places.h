// Places: the holders of the places of the running job - newcomers, lost workers, their successors.
//
// The place of a lost worker stays free for a while, and another worker takes it:
// 1. Every server confirms the loss; it forgets the lost worker's unfinished requests.
// 2. Another worker may have the place.
// 3. Every server confirms that it knows the newcomer.
// 4. The newcomer is notified that it is in the job.
// The table of states (peer_table.h) holds the order; here are the actions of its rows.
//
// Confined to the executor of the job.  Bounded by the ids of the job, and by as many workers that
// wait for a place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "membership/coordinator/detector.h"
#include "membership/coordinator/job_state.h"
#include "membership/coordinator/refusals.h"
#include "membership/coordinator/unwrapped_stores.h"

namespace ps {

class Places {
 public:
  // All outlive it.
  Places(JobState* job, Refusals* refusals, Detector* detector, UnwrappedStores* stores)
      : job_(job), refusals_(refusals), detector_(detector), stores_(stores) {}
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places() = default;

  // Runs the action if it is one of these; false if it is another part's.
  bool Act(PeerAction action, Peer* peer, const PeerDetails& details);
  // True if another worker may have the place of a lost one.
  bool MayReplace(const Peer& peer) const;

  // A node registers while the job runs.
  void Register(const Arrival& arrival);
  // An attached worker does.  REQUIRES: CheckAttach is ok.
  void Attach(const Arrival& arrival);
  // Ok if the worker may attach as its rank; before the job, and while it runs.
  bs::Status CheckAttach(const Node& node, int32_t rank) const;
  // True for a late repeat of a registration by a lost node.
  bool IsFormer(const Node& node, uint64_t sequence) const;
  // The reason for refusing an attached worker whose place another one holds.
  static bs::Status IsTaken(const Arrival& arrival, const Node& holder);
  // Notifies a node of another job that its job is over: we have its scheduler node's address.
  void DismissOfAnotherJob(const Meta& meta, uint64_t job);

  // The holder is lost; nothing happens if it has left or is lost already.
  void Lose(int32_t id, const std::string& why);
  // Sends the list of nodes to the holder.
  void SendList(const Peer& peer);
  // The job ends: refuses the workers that wait for a place.
  void RefuseWaiting();
  // When a stock worker last got the place of a lost one.
  const std::optional<bs::TimePoint>& stock_replaced() const { return stock_replaced_; }

 private:
  // Actions.
  void Connect(Peer* peer, const PeerDetails& details);
  void Introduce(Peer* peer, const PeerDetails& details);
  void Admit(Peer* peer, const PeerDetails& details);
  void SendListAgain(Peer* peer, const PeerDetails& details);
  void TakeSequence(Peer* peer, const PeerDetails& details);
  void Claim(Peer* peer, const PeerDetails& details);
  void Accept(Peer* peer, const PeerDetails& details);
  void Fill(Peer* peer, const PeerDetails& details);
  void Hold(Peer* peer, const PeerDetails& details);
  void Dismiss(Peer* peer, const PeerDetails& details);
  void RefuseSuccessor(Peer* peer, const PeerDetails& details);
  void Vacate(Peer* peer, const PeerDetails& details);
  void Fail(Peer* peer, const PeerDetails& details);

  // From now on the node holds the place, and is connected to.
  void Assign(Peer* peer, const Registrant& holder, bool native, bs::Duration patience);
  void Replace(Peer* peer, const Registrant& next);
  // Every server must know the newcomer before it sends anything there.  Logs `text` then.
  void NotifyServers(const Peer& newcomer, const std::string& text);
  // True if a registration at the address of a holder needs nothing more.  False if another process
  // has registered there and the holder is gone.
  bool IsOfHolder(int32_t id, const Arrival& arrival);
  // Says why the node gets no place.
  std::string WhyTooLate(const Arrival& arrival) const;
  // Returns the id of the free place that suits the node best; kEmpty if there is none.
  int32_t FindPlace(const Arrival& arrival) const;
  // True if the node waits for a place as its successor.
  bool IsSuccessor(const Arrival& arrival) const;
  // True if the node gets the place of a lost worker, now or soon.
  bool TakePlace(const Arrival& arrival);
  // Refuses the worker with `why` unless a place becomes free soon.
  void Hold(const Arrival& arrival, const bs::Status& why);
  bool MayWait(const Arrival& arrival) const;
  void TakeHeld(Peer* peer);
  // True if a node of this job, or a node that waits for it, has registered with that address.
  bool HasAddress(const Node& node) const;

  JobState* const job_;
  Refusals* const refusals_;
  Detector* const detector_;
  UnwrappedStores* const stores_;
  std::vector<Arrival> held_;             // workers that wait: a loss may not be noticed yet
  std::map<int32_t, Registrant> former_;  // by place: the native node that was lost there last
  std::optional<bs::TimePoint> stock_replaced_;
};

}  // namespace ps
