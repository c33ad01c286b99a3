// WaitingNodes: our connections to nodes that have registered and wait for the others.
//
// Such a node has no id; a connection to it carries reports, and shows if the node dies.
//
// Confined to the executor of the job.  Bounded by the nodes that register.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "membership/attempts.h"
#include "membership/coordinator/job_state.h"
#include "membership/reconnect_timer.h"

namespace ps {

class WaitingNodes {
 public:
  // Called while nodes register: no connection reaches this node, or its connection broke and did
  // not come back.  Never called inside a call here, but for OnOverflow.
  using Gone = std::function<void(const Node& node, const std::string& why)>;

  // `job` outlives it.
  WaitingNodes(JobState* job, Gone gone);
  WaitingNodes(const WaitingNodes&) = delete;
  WaitingNodes& operator=(const WaitingNodes&) = delete;
  ~WaitingNodes() = default;

  // Returns the transport's peer for the node, and connects if there is none.
  int32_t PeerOf(const Node& node, bool native);
  // Connects soon.  A connection at once would be broken off if this node completes the job; the
  // node would warn.
  void ConnectSoon(const Node& node, bool native);
  // Connects once more, to a stock node that was started again at its address.
  void ConnectAgain(const Node& node) { Watch(PeerOf(node, false), node, false); }
  // Returns the peer of the node at this address; kEmpty if there is no connection.
  int32_t Find(const Address& address) const;
  // The node waits no longer.
  void Remove(const Address& address);
  // Closes all connections.  Returns the addresses, "host:port", that they reached.
  std::set<std::string> Close();
  // The nodes and the transport's peers for them.
  std::vector<std::pair<Node, int32_t>> all() const;
  // True if a connection is down at present.
  bool AnyDown() const { return reconnect_timer_.AnyDown(); }
  // "; worker 10.0.0.1:4711: no connection to ..." for nodes that no connection has reached.
  std::string Unreached() const;

  // The transport's callbacks for peers without an id.
  void OnAttempt(int32_t peer, const std::string& what) { attempts_.OnAttempt(peer, what); }
  void OnConnected(int32_t peer);
  void OnDisconnected(int32_t peer) { reconnect_timer_.OnDisconnected(peer); }
  void OnOverflow(int32_t peer, const std::string& why);

 private:
  struct Waiting {
    Node node;
    int32_t peer = kEmpty;
  };

  void Watch(int32_t peer, const Node& node, bool native);
  void OnLost(int32_t peer, const std::string& why);

  JobState* const job_;
  const Gone gone_;
  Attempts attempts_;
  ReconnectTimer reconnect_timer_;
  int32_t next_peer_;
  std::map<std::string, Waiting> waiting_;        // by "host:port"
  std::map<std::string, std::string> unreached_;  // the sentences, by the nodes' names
};

}  // namespace ps
