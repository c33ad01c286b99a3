// SimNetwork: the network of a simulated cluster, with delay, bandwidth, loss, repetition and
// death.
//
// There are two models of a link.  Without hosts each pair of nodes has a link of its own, and
// messages under way may be lost: this model tests protocols.  With hosts (PutOnHost) the nodes
// share network interfaces, nothing is lost, and times are close to a real cluster's.
//
// Each node gets a ps::Transport.  Meta data is really encoded and parsed (wire.h).  Delays are
// drawn from the clock's seed, so messages of different pairs overtake each other freely; within
// one pair messages of equal priority keep their order, except for repeats, which come later.
// Connections come up when the other side is bound, at once after it binds, without polling.
//
// Everything runs in the simulator's one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "ps/transport.h"
#include "sim/sim_executor.h"

namespace bs::sim {

struct SimNetworkOptions {
  Duration delay_min = std::chrono::microseconds(50);
  Duration delay_max = std::chrono::microseconds(500);
  uint64_t bytes_per_second = 0;  // of each link, from a sender to a receiver; 0: no limit
  // Only for messages with our extension: stock nodes do not repeat theirs, so theirs always come.
  double loss = 0;    // probability that a message vanishes
  double repeat = 0;  // probability that it arrives a second time
  // Between hosts: each byte of a frame takes the time of so many, so that large payloads need not
  // be moved to be timed.
  uint64_t payload_scale = 1;
};

// The machine of a node: a full-duplex network interface, which several nodes may share, and one
// thread that serves it.
//
// A message leaves when the interface is free: peers take turns, and the most urgent message to a
// peer goes first.  It reaches the other interface while it leaves, and waits there if that
// interface is busy.  Both send and receive at most queued_bytes ahead: a committed message cannot
// be overtaken any more.
struct SimHostOptions {
  double bytes_per_second = 125e6;             // each way
  uint64_t queued_bytes = uint64_t{1} << 20U;  // that wait in the network, for each direction
  // Sent and not acknowledged, in all and to one peer, at most: ps::LinkBudget.  0 in all: no
  // limit.
  uint64_t ahead_bytes = 0;
  uint64_t ahead_each_bytes = 0;
  Duration message_cost{};  // of the thread, for each message, each end
  double byte_cost_ns = 0;  // the same for each byte
  // Besides, for each byte of the payloads that it sends, and that it receives.
  double sent_payload_cost_ns = 0;
  double received_payload_cost_ns = 0;
};

struct SimHostCounters {
  uint64_t messages = 0;      // sent
  double bytes = 0;           // sent to other hosts, with the headers of payloads
  Duration busy{};            // the time of the thread
  uint64_t most_waiting = 0;  // messages that were not committed yet, at most
};

class SimNetwork {
 public:
  // `clock` must outlive the network.
  SimNetwork(SimClock* clock, const SimNetworkOptions& options);
  // REQUIRES: every transport is gone.
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Callbacks run on `executor`, which must outlive the transport.
  std::unique_ptr<ps::Transport> MakeTransport(Executor* executor);

  // The node shares the interface of `beside`, if that is given: messages of both leave in turn,
  // and messages between the two do not cross it.  Each has a thread and a queue of its own.
  // REQUIRES: all nodes are put on hosts before they connect; no loss and no repeats; `beside` has
  // the same bytes_per_second.
  void PutOnHost(ps::Transport* transport, const SimHostOptions& options,
                 ps::Transport* beside = nullptr);
  SimHostCounters CountersOf(ps::Transport* transport) const;

  // The node of `transport` vanishes without a word: it sends and hears nothing any more, peers get
  // on_disconnected.  A restart is a new transport that binds the same address.
  void Kill(ps::Transport* transport);
  // Every connection of the node breaks and comes back after `duration`.
  void CutOff(ps::Transport* transport, Duration duration);
  // The connection that one node has made to another breaks, and nothing else: for good, or in the
  // middle of a message, and then it comes back.
  void Part(ps::Transport* from, ps::Transport* to, bool for_good = true);
  // Connections stay up, but nothing that the node sends arrives any more.
  void Mute(ps::Transport* transport);
  // Nodes that connect to it from now on see that it is no node of ours.
  void SetForeign(ps::Transport* transport);

  // The node is told that too much waits for `peer`, which it forgets.
  void Overflow(ps::Transport* of, int32_t peer);
  // True if the node says that it knows `peer`, whose messages may then be large.
  bool Knows(ps::Transport* of, int32_t peer) const;

  uint64_t delivered() const;
  uint64_t lost() const;
  uint64_t repeated() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs::sim
