// Contacts: the nodes that a member works with - the other side, and with joins_host the workers of
// its host.
//
// It connects to them, takes the scheduler node's news of them, and finds losses: of them and of
// the scheduler node, by their connections and violations.  The table in neighbours.h says what
// follows from a loss of the other side.  Workers of the host are in no table, and their violations
// do not count: if a connection never comes up or overflows, the job fails; if it breaks for good
// and servers find no loss, the worker has left.
//
// Confined to the context's executor.  Bounded by the ids of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "membership/attempts.h"
#include "membership/member/member_context.h"
#include "membership/member/neighbours.h"
#include "membership/member/stock_peers.h"
#include "membership/reconnect_timer.h"
#include "membership/violation_limiter.h"

namespace ps {

class Contacts {
 public:
  struct Hooks {
    // A loss fails the job, if this node takes part.
    std::function<void(const bs::Status& why)> fail_job;
    std::function<void(const std::string& why)> scheduler_lost;
  };

  // `context` must outlive it.
  Contacts(MemberContext* context, const NeighbourTable& table, Hooks hooks);
  Contacts(const Contacts&) = delete;
  Contacts& operator=(const Contacts&) = delete;
  ~Contacts() = default;

  // Connects to the nodes of the view, and to the scheduler node under this node's id.
  void Connect();
  // Forgets the connections to all of them but the scheduler node.
  void DisconnectAll();

  // True for nodes of the job, and for lost nodes until another node has the place; false if
  // dismissed.
  bool Knows(int32_t id) const;
  // A node of the other side, neither lost nor gone.
  bool IsKnown(int32_t id) const { return neighbours_.IsKnown(id); }
  // A worker of this host, with which this worker shares its sums.
  bool IsBeside(int32_t id) const { return beside_.contains(id); }
  // True if native data comes from an earlier holder of the sender's place.
  bool IsOfFormer(const Message& message) const;
  const Attempts& attempts() const { return attempts_; }
  StockPeers* stock() { return &stock_; }

  // The transport's callbacks, for any peer.
  void OnAttempt(int32_t id, const std::string& what) { attempts_.OnAttempt(id, what); }
  void OnConnected(int32_t id);
  void OnDisconnected(int32_t id);
  void OnOverflow(int32_t id, const std::string& why);

  // Counts a violation.  A node of the job with too many is dismissed: unknown until another has
  // the place.
  void OnViolation(int32_t id, const std::string& what);
  // Drops a message that no correct node sends, and counts it.
  void DropViolation(int32_t id, const std::string& why);
  // A native message of the scheduler node about one node: a newcomer, a loss or a goodbye.
  // Acknowledges it.
  void OnNews(const Meta& meta, const SchedulerBody& said);
  // A node of the other side is lost, or the scheduler node.
  void Lose(int32_t id, const std::string& why);
  // Reports lost nodes; the scheduler node may replace them.
  void SendUnreachable();

 private:
  bool Holds(NeighbourCondition condition, const Neighbour& neighbour) const;
  void Act(NeighbourAction action, Neighbour* neighbour, const NeighbourDetails& details);
  void ConnectBeside();
  // True the first time; notices may be repeated and overtake each other.
  bool IsNews(const Meta& meta);
  void OnNewcomer(const Node& node, uint64_t incarnation);
  void OnWorkerVacant(const Node& node, const SchedulerBody& said);
  void OnWorkerLeft(const Node& node, const std::string& reason);
  // Our connection to the node did not come up in time, or not again.
  void OnUnconnected(int32_t id, const std::string& why);
  // The same for a worker of this host.
  void OnUnconnectedBeside(int32_t id, const std::string& why);
  // A stock node fell silent, though it may be alive.
  void OnUnheard(int32_t id, const std::string& why);
  // Disconnects from a node that is lost because of `why`.
  void DropLost(Neighbour* neighbour, const std::string& why);
  void NotifyOfVacant(int32_t id, bool native);
  void NotifyOfGoodbye(int32_t id, const std::string& reason);

  MemberContext* const context_;
  const Hooks hooks_;
  Attempts attempts_;
  ReconnectTimer reconnect_timer_;
  ViolationLimiter violations_;
  std::set<int32_t> dismissed_;  // sent too many violations
  Neighbours neighbours_;
  // The workers of this host, with joins_host.  The other side judges whether they are lost.
  std::map<int32_t, Node> beside_;
  StockPeers stock_;
};

}  // namespace ps
