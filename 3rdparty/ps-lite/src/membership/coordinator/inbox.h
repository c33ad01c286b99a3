// Inbox: takes the messages of nodes that have an id, and drops what no correct node sends.
//
// Confined to the executor of the job.
#pragma once

#include <cstdint>
#include <string>

#include "membership/coordinator/detector.h"
#include "membership/coordinator/job_state.h"
#include "membership/coordinator/places.h"
#include "membership/coordinator/shutdown.h"
#include "membership/coordinator/unwrapped_stores.h"

namespace ps {

class Inbox {
 public:
  // All outlive it.
  Inbox(JobState* job, Detector* detector, Places* places, Shutdown* shutdown,
        UnwrappedStores* stores)
      : job_(job), detector_(detector), places_(places), shutdown_(shutdown), stores_(stores) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() = default;

  // A message under the id of a node.
  void OnMessage(const Message& message);
  // Drops a message that no correct node sends, and counts it.
  void DropViolation(const Message& message, const std::string& why);
  // A node of the job violates the protocol.  One that goes on is lost and unknown.
  void OnViolation(int32_t id, const std::string& what);

 private:
  // Returns the holder if the message is one of this job and of its present holder; null if it is
  // dropped.
  Peer* FindSender(const Message& message, const MemberBody& body);
  // Handles a command of a holder.
  void Handle(const Message& message, const MemberBody& body, const Peer& peer);
  // False for a repeat or an acknowledgement, which needs nothing more.
  bool TakeStock(const Message& message);
  void OnBarrier(int32_t id, const Message& message);
  void OnHeartbeat(int32_t id, const Message& message, const MemberBody& body);
  void OnLeave(int32_t id, const Message& message);
  // The sender reports that the job failed.
  void OnReport(int32_t id, const Extension& extension);
  // A server reports a lost worker, or a worker a lost server.
  void OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation);

  JobState* const job_;
  Detector* const detector_;
  Places* const places_;
  Shutdown* const shutdown_;
  UnwrappedStores* const stores_;
};

}  // namespace ps
