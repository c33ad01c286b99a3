// ConnectProbe: why a connection of libzmq's does not come up.  libzmq tells no reason, but a
// connection of our own to the same address fails for the same reason.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/loop_thread.h"
#include "transport/socket_address.h"
#include "transport/tcp_socket.h"

namespace ps {

// Belongs to `loop`, where `tell` is called too, possibly inside Begin.
class ConnectProbe {
 public:
  using Tell = std::function<void(const std::string& what)>;

  // `endpoint`: "tcp://10.0.0.1:4711" or "ipc:///tmp/4711".  Where its host is a name, nothing is
  // told, as a look-up would block.
  ConnectProbe(bs::LoopThread* loop, const std::string& endpoint, Tell tell);
  ConnectProbe(const ConnectProbe&) = delete;
  ConnectProbe& operator=(const ConnectProbe&) = delete;
  ~ConnectProbe() { End(); }

  // Tells that the peer does not answer.
  void TellSilence();
  // Begins to connect and tells why that fails; hangs up if it does not.  Does nothing while an
  // earlier attempt is under way.
  void Begin();
  void End();

 private:
  void OnChange();
  void ConnectToFile();

  bs::LoopThread* const loop_;
  const Tell tell_;
  std::string where_;
  std::string file_;                      // empty: not an ipc endpoint
  std::optional<SocketAddress> address_;  // none: a name, or an ipc endpoint
  TcpSocket socket_;
};

}  // namespace ps
