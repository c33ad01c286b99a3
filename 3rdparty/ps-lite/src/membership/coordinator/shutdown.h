// Shutdown: how nodes leave, and how the job ends.
//
// The job ends well when no worker has work left, and badly when a holder is lost whose place no
// other may have.  Then every node is notified, and the scheduler node finishes once the nodes have
// confirmed it, or cannot be reached.
//
// Confined to the executor of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "membership/coordinator/detector.h"
#include "membership/coordinator/job_state.h"
#include "membership/coordinator/places.h"
#include "membership/coordinator/refusals.h"
#include "membership/coordinator/rendezvous.h"
#include "membership/coordinator/unwrapped_stores.h"

namespace ps {

class Shutdown {
 public:
  // The other parts, which outlive it.
  struct Parts {
    Refusals* refusals;
    Detector* detector;
    UnwrappedStores* stores;
    Places* places;
    Rendezvous* rendezvous;
  };
  // `finished`: called once, at the end, in a task of its own.
  Shutdown(JobState* job, const Parts& parts, std::function<void()> finished);
  Shutdown(const Shutdown&) = delete;
  Shutdown& operator=(const Shutdown&) = delete;
  ~Shutdown() = default;

  // Runs the action if it is one of these; false if it is another part's.
  bool Act(PeerAction action, Peer* peer, const PeerDetails& details);
  // True if the holder is the stock worker of a process whose attached worker left.
  bool HasLeftBeside(const Peer& peer) const;

  // Ends the job, once.
  void End(const bs::Status& verdict);
  // Ends the job in good order if no node has work left.
  void CheckEnd();
  // Ends the job if workers wait at different barriers, or a stock worker for too long.
  void CheckStragglers();
  // There is nothing to notify: finishes with the verdict.
  void Finish();

  // A stock node fell silent, though it may be alive: it is ended, unless another node of its
  // process notifies it, and is lost.
  void OnUnheard(int32_t id, const std::string& why);
  // A stock worker registers once more, for another store of its process.
  void OnSecondStore(const Peer& peer);

 private:
  // Actions.
  void AnnounceGoodbye(Peer* peer, const PeerDetails& details);
  void ConfirmGoodbye(Peer* peer, const PeerDetails& details);
  void Respond(Peer* peer, const PeerDetails& details);
  void EndGoodbye(Peer* peer, const PeerDetails& details);
  void CheckFinish(Peer* peer, const PeerDetails& details);
  void Retire(Peer* peer, const PeerDetails& details);
  void EndForLoss(Peer* peer, const PeerDetails& details);
  void CheckEndForLoss(Peer* peer, const PeerDetails& details);

  // The node left or is lost: no connection to it and no confirmation of it is missed.
  void Forget(const Peer& peer);
  // `reason`: of its goodbye, perhaps none.
  void EndBarriers(const Peer& peer, const std::string& reason = {});
  // True if the stock workers have no work left.
  bool StockWorkersAreOver(bool attached_over) const;
  // True if a stock node has no attached worker, which would report a failure to its process.
  bool StandsAlone(const Peer& peer) const;
  // Ends the job if attached workers do not leave after the stock ones.
  void AwaitAttached();
  void NotifyRunning();
  // Sends the verdict until all have confirmed it.
  void Notify(Op op, const std::vector<int32_t>& natives);
  // Notifies nodes that may not know the job's number yet; they take only responses to their
  // registration.
  void NotifyRegistering();
  // Finishes if every node that is notified has confirmed it.
  void MaybeFinish();
  // True if each native node has left or is lost, and has closed its end.
  bool AllClosed() const;

  JobState* const job_;
  const Parts parts_;
  const std::function<void()> finished_;
  Repeater registering_;        // notifies registering nodes
  std::vector<int32_t> alone_;  // stock nodes without an attached worker
  bool final_timer_ = false;
  bool everyone_notified_ = false;
  bool farewell_over_ = false;
  bool farewell_timer_ = false;
};

}  // namespace ps
