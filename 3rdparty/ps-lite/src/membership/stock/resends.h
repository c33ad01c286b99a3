// Resends: stock nodes with PS_RESEND=1 send again what nobody acknowledges, and end their process
// at the tenth time.  Tells repeats, so that none counts twice, and what to acknowledge.
//
// A stock node without PS_RESEND warns of every acknowledgement, so one goes only to those that
// have sent one themselves, or a repeat.
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
  // How many numbers back a repeat is known as one, and how many counters of a peer are followed:
  // that of its control messages, and one of each of its stores.
  static constexpr int64_t kWindow = 1 << 16;
  static constexpr size_t kMostCounters = 64;

  struct Verdict {
    bool fresh = true;             // to be handled: no repeat, no acknowledgement
    std::optional<Meta> ack = {};  // to be sent to the peer
  };

  // A message of a stock node in the job; `own_id` is the receiver's.
  Verdict Take(const Message& message, int32_t own_id);
  // Whether it is a stock node, as far as anybody has heard of it, and one with PS_RESEND.
  bool Heard(int32_t peer) const { return peers_.contains(peer); }
  bool SendsAgain(int32_t peer) const {
    const auto it = peers_.find(peer);
    return it != peers_.end() && it->second.resends;
  }
  // Another process has the peer's id from now on.
  void Forget(int32_t peer) { peers_.erase(peer); }

 private:
  // Requests are numbered by store, control messages by process.
  struct Counter {
    bool is_control = false;
    int32_t customer_id = 0;
    auto operator<=>(const Counter&) const = default;
  };
  // Which of the latest numbers have come.
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
