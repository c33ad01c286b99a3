// ServerQueues: a Scheduler for each server.  All advance in proportion to their shares, but those
// beside the worker, which may be ahead.
//
// Each server has its own credit and its own order of priority.  A partition starts only if its
// server is at most that partition ahead of the other servers.  A server's progress is the bytes
// that it has started, divided by its share.  Without that rule a worker's link serves all servers
// alike.  Then a server with a small share of all bytes has its part early.  The link of a server
// with a large share is idle in the first part of a step and too slow in the second.  A server
// waits only for servers whose next partition is at least as urgent.  So a server that does not
// respond holds back partitions that are not more urgent.  It does so until it responds or the
// worker learns that it is lost.
//
// A server beside the worker waits for no server, as no link leads to it.  Else the slowest link of
// a job would slow the others.  The sums on that server go to all workers, and would come no faster
// than this worker's partitions leave for other servers.  Other servers still wait for it.
//
// Source: start-time fair queuing, Goyal, Vin and Cheng, "Start-time Fair Queuing: A Scheduling
// Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996, section 2.
//
// Not thread-safe: the owner confines it to one executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/scheduler.h"

namespace bs::core {

class ServerQueues {
 public:
  // A server whose weight is 0 gets little, and counts as an average server.
  // REQUIRES: num_servers > 0; credit_bytes > 0; no weights, or one for each server; servers beside
  // are less than num_servers.
  ServerQueues(uint32_t num_servers, uint64_t credit_bytes, const Shares& shares,
               bool small_reserve = true);

  uint32_t num_servers() const { return static_cast<uint32_t>(servers_.size()); }
  void Submit(uint32_t server, const Item& item);
  // The item of that server that may start now; nothing if none is queued, if the credit is spent,
  // or if it is not beside and a server with an item as urgent is behind.  The latter has credit,
  // or gets it back: the owner asks again for all servers whenever an item started or credit
  // returned.
  std::optional<Item> Next(uint32_t server);
  // The same as in Scheduler.
  void Return(uint32_t server, uint64_t size_bytes);
  void SetCredit(uint64_t credit_bytes);
  void Remove(uint32_t server, const void* token);
  void Clear();

  const Scheduler& of(uint32_t server) const { return *schedulers_[server]; }

 private:
  // The facts about a server that a decision needs, side by side for all servers.
  struct Server {
    double started = 0;    // bytes that it has started, over its share: the start tag of its next
    double per_byte = 1;   // the inverse of its share, 1 where all are equal
    bool queued = false;   // something
    Priority urgency = 0;  // of its next item
    bool beside = false;   // on this host
  };

  void Look(uint32_t server);  // at its queue, which has changed
  // The least start tag of the servers with a queue; infinite if all queues are empty.
  double Least();
  // How far the servers with something queued are; the furthest of all, if none has.
  double Progress();
  bool IsHeld(uint32_t server);
  static bool IsHeldBy(const Server& ahead, double lead, const Server& other);

  std::vector<std::unique_ptr<Scheduler>> schedulers_;  // by rank of the server
  std::vector<Server> servers_;                         // the same
  std::optional<double> least_;                         // if it is known
  size_t holder_ = 0;  // the server that held another the last time
};

}  // namespace bs::core
