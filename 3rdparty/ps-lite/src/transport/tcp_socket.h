// Non-blocking sockets: owned descriptors, and errors in words.
//
// TcpSocket is confined to one thread; the functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ps/transport.h"
#include "transport/descriptor.h"
#include "transport/socket_address.h"

namespace ps {

inline constexpr int kBacklog = 1024;  // all workers connect at the same moment

class TcpSocket : public Descriptor {
 public:
  using Descriptor::Descriptor;
  void Set(int level, int option, int value) const;
};

// Returns the first address of the host that a route leads to; see LookUp for their order.  "*" is
// any local address.  Blocks while a name is looked up, unless IsNumeric.  kInvalidArgument, naming
// the host, if it has none.
bs::Result<SocketAddress> ResolveTcp(const Address& address);
bool IsNumeric(const std::string& host);

// The error of a socket that the system refused with `error`, an errno.
bs::Status NoSocket(int error);

// kInvalidArgument if the port is none to connect to.
bs::Status CheckRemotePort(const Address& address);
// kInvalidArgument if the port is none to listen on; 0 is any.
bs::Status CheckLocalPort(const Address& address);
// Begins to connect; does not block.  kResourceExhausted if there is no socket, kUnavailable if it
// fails at once.
bs::Result<TcpSocket> ConnectTcp(const SocketAddress& address);

// "tcp://host:port"; an IPv6 host stands in brackets.
std::string TcpEndpoint(const Address& address);
// Sets how the kernel sends on the connection `fd`.  It holds at most `unsent_bytes` unsent, since
// unsent bytes cannot be overtaken; 0 leaves the bound to the kernel.  From Linux 6.15 on it also
// retransmits at least every second.  By default the interval doubles, up to two minutes: after an
// outage of half a minute the connection would stay silent for as long again.  Fails silently on a
// broken connection, which other calls find out.
void TuneSending(int fd, int unsent_bytes);
// Lets the kernel probe the other host every `interval`, also while nothing is sent.  The kernel
// there answers, even for a stopped process.
void ProbeHost(int fd, bs::Duration interval);
// Returns how long ago the other host acknowledged data or a probe.  0 where the time would prove
// nothing: while connecting, and on kernels before Linux 6.15 while data waits.  Such kernels probe
// ever more rarely then (see TuneSending): for minutes if the peer is stopped and its window full.
bs::Duration SinceAcknowledged(int fd);

// Explains a bind that failed with `error`, in terms of the settings that chose `endpoint`.
bs::Status BindError(const std::string& endpoint, int error);
// Listens on `address`.  kAlreadyExists if the port is in use, kInvalidArgument if this host does
// not have the address; both name it.
bs::Result<TcpSocket> ListenTcp(const Address& address);
SocketAddress LocalAddress(const TcpSocket& socket);
// True if both ends of a connection are at addresses of this host.
bool WithinHost(int fd);
// DescribePeer's text for a connection whose other end is gone.
inline constexpr std::string_view kGoneAlready = "gone already";
// Returns the address of the other end, for people: "10.0.0.1:4711" or
// "[fd00::1]:4711".
std::string DescribePeer(int fd);

}  // namespace ps
