// Resends: recognises repeated messages of stock nodes, and says which messages to acknowledge.
//
// A stock node with PS_RESEND=1 repeats a message until it is acknowledged, and ends its process at
// the tenth time.  A stock node without it warns of every acknowledgement.  So only nodes that have
// sent a repeat or an acknowledgement get an acknowledgement.
//
// Confined to its owner's executor; bounded memory for each peer; never fails, never blocks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ps/message.h"

namespace ps {

class Resends {
 public:
  // A repeat is recognised up to kWindow numbers back.  A peer has a counter for its control
  // messages and a counter for each of its stores; at most kMostCounters are followed.
  static constexpr int64_t kWindow = 1 << 16;
  static constexpr size_t kMostCounters = 64;

  struct Verdict {
    bool fresh = true;             // neither a repeat nor an acknowledgement
    std::optional<Meta> ack = {};  // to be sent to the peer
  };

  // Takes a message of a stock node in the job; `own_id` is the receiver's id.
  Verdict Take(const Message& message, int32_t own_id);
  // Heard: a message of this stock node has come.  SendsAgain: it has PS_RESEND.
  bool Heard(int32_t peer) const { return peers_.contains(peer); }
  bool SendsAgain(int32_t peer) const {
    const auto it = peers_.find(peer);
    return it != peers_.end() && it->second.resends;
  }
  // From now on another process has the peer's id.
  void Forget(int32_t peer) { peers_.erase(peer); }

 private:
  // Requests are numbered by store, control messages by process.
  struct Counter {
    bool is_control = false;
    int32_t customer_id = 0;
    auto operator<=>(const Counter&) const = default;
  };
  // The latest numbers that have come.
  class Window {
   public:
    // True the first time.
    bool Take(int32_t number);

   private:
    int64_t next_ = 0;  // one more than the largest
    std::vector<bool> seen_ = std::vector<bool>(kWindow);
  };
  struct Peer {
    bool resends = false;
    std::map<Counter, Window> windows{};
  };

  std::map<int32_t, Peer> peers_;
};

}  // namespace ps
