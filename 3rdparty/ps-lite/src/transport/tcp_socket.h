// Non-blocking sockets: owned descriptors, IPv4 addresses, and in words why one cannot be had.
//
// TcpSocket is confined to one thread; the functions are thread-safe.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "bytescheduler/status.h"
#include "ps/transport.h"
#include "transport/descriptor.h"

namespace ps {

inline constexpr uint32_t kLoopbackNet = 127;  // the first byte of its addresses
inline constexpr int kBacklog = 1024;          // every worker comes at the same moment

class TcpSocket : public Descriptor {
 public:
  using Descriptor::Descriptor;
  void Set(int level, int option, int value) const;
};

// The first IPv4 address of `host`, "*" being any of ours.  Blocks while a name is looked up,
// unless IsNumeric.  kInvalidArgument, naming it, if there is none.
bs::Result<sockaddr_in> ResolveTcp(const Address& address);
bool IsNumeric(const std::string& host);

// kInvalidArgument if that is no port to connect to.
bs::Status CheckRemotePort(const Address& address);
// kInvalidArgument if that is no port to listen on; 0 is any.
bs::Status CheckLocalPort(const Address& address);
// Begins to connect.  kUnavailable if that failed at once.
bs::Result<TcpSocket> ConnectTcp(const sockaddr_in& address);

// "tcp://host:port".
std::string TcpEndpoint(const Address& address);
// How the kernel sends on the connection `fd` of a connection.  It holds at most `unsent_bytes`
// unsent, as those cannot be overtaken; 0 leaves that to it.  And it sends again at least every
// second what is not acknowledged, if it knows how (Linux 6.15 and later): it would wait twice as
// long each time, up to two minutes, and a network that was away for half a minute would stay
// silent for as long again once it is back.  Fails silently on a connection that is broken already,
// which is found out anyway.
void TuneSending(int fd, int unsent_bytes);
// From now on the kernel asks the other host every so often whether it is there, also while nothing
// is sent.  A process that is stopped does not matter: its kernel answers.
void ProbeHost(int fd, bs::Duration interval);
// How long ago the other host acknowledged something, a probe too.  0 where that would be no sign:
// while the connection is being made, and while something waits to be sent or acknowledged on a
// kernel that asks less and less often then (see TuneSending), for minutes where the peer is
// stopped and its window full.
bs::Duration SinceAcknowledged(int fd);

// What a bind that failed with `error` means for whoever chose `endpoint`.
bs::Status BindError(const std::string& endpoint, int error);
// kAlreadyExists if the port is in use, kInvalidArgument if the address is not one of this host,
// both naming it.
bs::Result<TcpSocket> ListenTcp(const Address& address);
sockaddr_in LocalAddress(const TcpSocket& socket);
// Whether both ends of a connection are at addresses of this host.
bool WithinHost(int fd);
// Who is at the other end of a connection, for people: "10.0.0.1:4711".
inline constexpr std::string_view kGoneAlready = "gone already";  // what it is if nobody is
std::string DescribePeer(int fd);

}  // namespace ps
