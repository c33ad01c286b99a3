// Peers: the places of the running job by id, each in one state of the table.
//
// Bookkeeping; confined to its owner's executor.  Bounded by the ids of the job.  Only Apply
// changes a state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "membership/coordinator/peer_table.h"
#include "ps/message.h"

namespace ps {

// A node that has registered, with the number of its latest registration.
struct Registrant {
  Node node;
  uint64_t sequence = 0;
};

// A place; its holder is the process that has it now, or had it last.
struct Peer {
  Node node;  // of the holder
  bool native = false;
  uint64_t sequence = 0;     // of the holder's registration
  uint64_t incarnation = 0;  // of the present or next holder
  PeerState state = PeerState::kFree;
  Registrant successor{};  // in kClaimed
};

// The details of an event; each event has its own.
struct PeerDetails {
  std::string why{};                 // kLost; kGoodbye: its reason, perhaps none
  Registrant newcomer{};             // kAllThere, kComes
  bool native = true;                // the same
  uint64_t sequence = 0;             // kAddressShared, kGoodbye, kGoodbyeKnown
  const Message* message = nullptr;  // kHeard, kFormerHeard
};

class Peers {
 public:
  enum class Outcome { kDone, kRepeat, kViolation };
  // True if the condition holds for an event at the place.
  using Holds = std::function<bool(PeerCondition, const Peer&, const PeerDetails&)>;
  // Runs an action at the place, which is in its next state already.  May call Apply.
  using Act = std::function<void(PeerAction, Peer*, const PeerDetails&)>;
  struct Callbacks {
    Holds holds;
    Act act;
  };

  Peers(PeerTable table, Callbacks callbacks)
      : table_(std::move(table)), callbacks_(std::move(callbacks)) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers() = default;

  // Takes the row of the table for the place of `id`.  An id without a place is free.
  Outcome Apply(int32_t id, PeerEvent event, const PeerDetails& details = {});
  // The place of an id, not free; null if there is none.  Valid as long as this object.
  Peer* Find(int32_t id);
  const Peer* Find(int32_t id) const;
  // All places that are not free, by id.
  const std::map<int32_t, Peer>& all() const { return peers_; }
  // Ids of the native servers that neither left nor are lost.
  std::vector<int32_t> NativeServers() const;

 private:
  const PeerTable table_;
  const Callbacks callbacks_;
  std::map<int32_t, Peer> peers_;
};

}  // namespace ps
