// ConnectionListener: what the connection to one peer tells its owner.
#pragma once

#include <functional>
#include <string>

namespace ps {

// Called on the connection's loop, never inside a method of the connection, and not after its
// Drain.
struct ConnectionListener {
  std::function<void()> on_connected;
  std::function<void()> on_disconnected;  // once for each on_connected at most
  // Whether long frames go from now on, until on_disconnected, through memory that both share; not
  // called where none was offered.
  std::function<void(bool shares)> on_sharing{};
  // The first handshake that failed, with what is known of it, perhaps nothing; the connection goes
  // on trying.
  std::function<void(const std::string& what)> on_refused;
};

}  // namespace ps
