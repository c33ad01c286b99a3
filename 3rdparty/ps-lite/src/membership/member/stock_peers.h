// StockPeers: what a member does for nodes that are MXNet's own and know no extension.
//
// It takes their repeats, finds the silent ones, and ends the processes of lost workers.  A stock
// worker that is lost and alive would wait for responses for ever, or go on alone.
//
// Confined to the context's executor.  Bounded by the ids of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "membership/member/member_context.h"
#include "membership/member/neighbours.h"
#include "membership/stock/inbound_watch.h"
#include "membership/stock/resends.h"
#include "membership/stock/suspicion_timer.h"

namespace ps {

class StockPeers {
 public:
  // `unheard`: the node fell silent, though it may be alive.  Never called inside a call here.
  using Unheard = std::function<void(int32_t id, const std::string& why)>;

  // `context` and `neighbours` must outlive it.
  StockPeers(MemberContext* context, Neighbours* neighbours, const Unheard& unheard);
  StockPeers(const StockPeers&) = delete;
  StockPeers& operator=(const StockPeers&) = delete;
  ~StockPeers() = default;

  // False for a repeat or an acknowledgement, which needs nothing more.
  bool Take(const Message& message);
  // Handles data of a node that is not in the job.
  void TurnAway(const Message& message);
  // Orders a worker to end its process, and forgets it.
  void SendEnd(const Node& node, const std::string& why);

  // The transport's callbacks, for any peer.
  void OnInbound(int32_t id) { inbound_.OnOpened(id); }
  void OnInboundEnded(int32_t id, bool torn);
  // A connection with the node has ended, and a message that is sent once may be lost with it.
  void Suspect(int32_t id);

  // The node left: it need not send again.
  void EndSuspicion(int32_t id) { suspicion_timer_.Forget(id); }
  // The node is lost: no connection or message of it is missed.
  void ForgetSilence(int32_t id);
  // From now on another process has the id, or none has.
  void ForgetMessages(int32_t id) { resends_.Forget(id); }

 private:
  // The entry of a lost node whose place no other has; null if there is none.
  Neighbour* FindLost(int32_t id);
  // Notifies a lost worker, every two seconds for a while, until another has its place.
  void TellTheEnd(int32_t id);

  MemberContext* const context_;
  Neighbours* const neighbours_;
  InboundWatch inbound_;
  SuspicionTimer suspicion_timer_;  // for workers, on servers
  Resends resends_;
};

}  // namespace ps
