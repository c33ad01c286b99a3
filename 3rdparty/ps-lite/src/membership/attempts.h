// Attempts: which peers a connection has reached, and how the attempts on other peers ended.
//
// Bookkeeping; confined to the membership's executor.  Bounded by the peers that the owner connects
// to and forgets.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ps/transport.h"

namespace ps {

class Attempts {
 public:
  // Transport::Handler::on_attempt and on_connected.
  void OnAttempt(int32_t peer, const std::string& what) { all_[peer].latest = what; }
  void OnConnected(int32_t peer) { all_[peer].reached = true; }
  // The next connection to `peer` may go to another address.
  void Forget(int32_t peer) { all_.erase(peer); }

  // True if a connection to `peer` has been up.
  bool Reached(int32_t peer) const;
  // The latest attempt, "10.0.0.1:4711: Connection refused"; empty if the transport tells none.
  std::string Latest(int32_t peer) const;
  // Why the peer at `address` counts as lost: `otherwise` if it was reached before, else "no
  // connection to 10.0.0.1:4711 (Connection refused); set DMLC_NODE_HOST ...".
  std::string WhyLost(int32_t peer, const Address& address, const std::string& otherwise) const;

 private:
  struct Attempt {
    bool reached = false;
    std::string latest{};
  };
  std::map<int32_t, Attempt> all_;
};

}  // namespace ps
