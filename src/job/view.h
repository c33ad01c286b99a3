// View: the nodes of a job at a time, as a node of the job sees them.
//
// A pure value: membership makes it, and every other part reads it.  Parts of a process share a
// view, which never changes: a change of membership makes another view with the next epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace bs::job {

enum class Role : uint8_t { kWorker, kServer };

// A worker or a server.
struct Peer {
  // Its place in View::hosts; equal numbers are the same host.  A node of an unknown host has
  // a number behind the last host that no other node has.
  int32_t host = 0;

  bool operator==(const Peer&) const = default;
};

// A host: its workers and servers share a link, each way.
struct Host {
  uint64_t link_rate =
      0;  // bits per second; the lowest rate that any of its nodes states; 0: no rate

  bool operator==(const Host&) const = default;
};

// The place of the node that holds the view.
struct Place {
  Role role = Role::kWorker;
  int32_t rank = 0;
  uint64_t incarnation = 0;  // above 0: the place was lost, and another process has taken it

  bool operator==(const Place&) const = default;
};

struct View {
  uint64_t epoch = 0;         // counts the changes of membership; today no job changes
  uint64_t job = 0;           // a number that no other job has; 0: not known
  std::vector<Peer> workers;  // by rank
  std::vector<Peer> servers;  // by rank; empty where no server carries the sums
  std::vector<Host> hosts;
  Place own;

  int32_t num_workers() const { return static_cast<int32_t>(workers.size()); }
  int32_t num_servers() const { return static_cast<int32_t>(servers.size()); }
  bool has_worker(int32_t rank) const { return rank >= 0 && rank < num_workers(); }
  // Nothing: the host is not known.
  std::optional<int32_t> HostOf(const Peer& peer) const {
    const bool known = static_cast<size_t>(peer.host) < hosts.size();
    return known ? std::optional(peer.host) : std::nullopt;
  }
  // Returns the ranks of all workers on the host of worker `rank`, in order, with its own.
  // REQUIRES: has_worker(rank).
  std::vector<int32_t> WorkersBeside(int32_t rank) const;
  // Returns the ranks of all servers on the host of the node that holds the view, in order.
  // REQUIRES: `own` is a place of the view.
  std::vector<uint32_t> ServersBeside() const;

  bool operator==(const View&) const = default;
};

// Owners: every part that reads the view.
using SharedView = std::shared_ptr<const View>;

// Returns the first view of a job of unknown hosts.
View MakeView(Place own, int32_t num_workers, int32_t num_servers);
SharedView ShareView(Place own, int32_t num_workers, int32_t num_servers);

}  // namespace bs::job
