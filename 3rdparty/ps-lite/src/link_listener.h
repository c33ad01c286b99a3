// LinkListener: what the link to one peer tells its owner.
#pragma once

#include <functional>
#include <string>

namespace ps {

// Called on the link's loop, never inside a method of the link, and not after its Drain.
struct LinkListener {
  std::function<void()> on_connected;
  std::function<void()> on_disconnected;  // once for each on_connected at most
  // From now on, until on_disconnected, long frames go through memory that both share.
  std::function<void()> on_sharing{};
  // The first handshake that failed, with what is known of it, perhaps nothing; the link goes on
  // trying.
  std::function<void(const std::string& what)> on_refused;
};

}  // namespace ps
