// Addresses as libzmq's endpoints, and the listener of a node.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "ps/transport.h"
#include "transport/tcp_socket.h"
#include "transport/zmq/zmq_socket.h"
#include "transport/zmq/zmq_transport.h"

namespace ps {

// "tcp://host:port" or "ipc:///tmp/port".  kInvalidArgument for an impossible port.
bs::Result<std::string> RemoteEndpoint(const Address& address, bool ipc);

// A ROUTER that receives on an address.  Confined to one thread.
class ZmqListener {
 public:
  // May block while a host name is looked up.  kAlreadyExists if the port is in use,
  // kInvalidArgument if this host does not have the address; both name it.  If `options` has keys,
  // peers need them to connect.
  static bs::Result<std::unique_ptr<ZmqListener>> Open(const ZmqContext& context,
                                                       const Address& address,
                                                       const ZmqOptions& options);
  ZmqListener(const ZmqListener&) = delete;
  ZmqListener& operator=(const ZmqListener&) = delete;
  ~ZmqListener();

  ZmqSocket& socket() { return *router_; }
  int32_t port() const { return port_; }
  bool loopback() const { return loopback_; }  // only this host can connect

 private:
  ZmqListener() = default;
  bs::Status BindTcp(const Address& address);
  bs::Status BindIpc(int32_t port);
  bs::Status BindAnyIpc();

  std::unique_ptr<ZmqSocket> router_;
  TcpSocket claim_;   // holds the claim to the ipc port
  std::string path_;  // the file of our ipc socket; empty: none to remove
  int32_t port_ = 0;
  bool loopback_ = true;
};

}  // namespace ps
