// Roster: the nodes that have registered for the job, and their ranks.
//
// Pure bookkeeping of the rendezvous (PROTOCOL.md); sends nothing.  Confined to its owner's
// executor.  Bounded by the number of workers and servers of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace ps {

class Roster {
 public:
  struct Entry {
    Node node;
    bool native = false;
    uint64_t sequence = 0;     // a native node's: that of its latest registration
    int32_t wanted_rank = -1;  // -1: any
  };
  enum class Verdict { kAdded, kRepeated, kRefused };
  struct Outcome {
    Verdict verdict = Verdict::kAdded;
    bs::Status why;  // not ok if refused
  };

  Roster(int32_t num_workers, int32_t num_servers)
      : num_workers_(num_workers), num_servers_(num_servers) {}

  // Refuses a rank that the job does not have, or that another node of the role has asked for.
  // REQUIRES: CheckNode(node) is ok.
  Outcome Add(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank = -1);
  bool complete() const {
    return Count(Role::kWorker) == num_workers_ && Count(Role::kServer) == num_servers_;
  }
  // Removes the node of this address, if there is such a node.  REQUIRES: AssignIds was not called.
  void Remove(const Address& address);
  // Sorts the entries by host, descending, and port, ascending.  Gives the ranks that were asked
  // for, and the other ranks in that order.  Entries with the same address share the id of the
  // first.  REQUIRES: complete(); called once.
  void AssignIds();
  // From now on `node` has the place of the entry with its id.  The entry keeps the first host and
  // its statement about its link.  REQUIRES: there is one.
  void Replace(const Node& node, uint64_t sequence);
  // Returns how many nodes of the role are missing.
  int32_t NumMissing(Role role) const { return Wanted(role) - Count(role); }
  // Returns how many entries have this id.
  int64_t CountId(int32_t id) const;

  const std::vector<Entry>& entries() const { return entries_; }
  // The entry of this address; null if there is none.
  const Entry* Find(const std::string& hostname, int32_t port) const;
  // A server of MXNet's own; null if there is none.
  const Node* StockServer() const { return Find(Role::kServer, false); }
  // A worker of MXNet's own; null if there is none.
  const Node* StockWorker() const { return Find(Role::kWorker, false); }
  // Not ok, with the reason, if the registered nodes cannot form a job together.
  bs::Status Check() const;
  // "waiting for 1 of 2 workers, 2 of 2 servers", without a role that is complete.
  std::string Waiting() const;
  // "missing 1 of 2 workers; registered: worker 10.0.0.1:4711, server 10.0.0.1:4712".
  std::string Missing() const;

 private:
  const Node* Find(Role role, bool native) const;
  // The entry of the same address and kind, if the node has registered before; null if it is new.
  // Not ok if the address is that of a node of another kind.
  bs::Result<Entry*> FindSame(const Node& node, bool native);
  bs::Status CheckRoom(const Node& node) const;
  int32_t Count(Role role) const;
  int32_t Wanted(Role role) const { return role == Role::kWorker ? num_workers_ : num_servers_; }
  bs::Status CheckRank(const Node& node, int32_t rank) const;
  std::string Lacking(Role role) const;  // "1 of 2 workers"
  std::string AllLacking() const;        // of each role that is not complete

  const int32_t num_workers_;
  const int32_t num_servers_;
  std::vector<Entry> entries_;
};

// The lines ("name=value") in which two settings texts differ, for a person:
// "num_workers=3 instead of num_workers=2"; empty if they are equal.
std::string DifferenceOf(const std::string& settings, const std::string& expected);

}  // namespace ps
