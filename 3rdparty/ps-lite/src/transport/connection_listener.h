// ConnectionListener: callbacks from the connection to a peer to its owner.
#pragma once

#include <functional>
#include <string>

namespace ps {

// The identity that a ROUTER of ours gives in its READY (PROTOCOL.md, "Whose node it is").
inline constexpr const char* kOurIdentity = "bytescheduler";

// Called on the connection's loop, never inside a method of the connection, never after Drain.
struct ConnectionListener {
  std::function<void()> on_connected;
  // The other end is no node of ours; comes before on_connected.
  std::function<void()> on_foreign{};
  std::function<void()> on_disconnected;  // at most once for each on_connected
  // See Transport::Handler.  May come inside a method.
  std::function<void(const std::string& what)> on_attempt{};
  // `shares`: until on_disconnected, long frames go through memory that both ends share.  Not
  // called where no memory was offered.
  std::function<void(bool shares)> on_sharing{};
  // Until on_disconnected, messages leave by RDMA.
  std::function<void()> on_rdma{};
  // This end has RDMA, and the other end takes no RDMA and shares no memory.  Called once.
  std::function<void()> on_no_rdma{};
  // The first handshake failed; `what` is the reason, empty if none is known.  The connection
  // retries.
  std::function<void(const std::string& what)> on_refused;
};

}  // namespace ps
