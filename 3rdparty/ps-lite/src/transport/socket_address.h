// SocketAddress: an IPv4 or IPv6 address with its port, as the kernel takes it, and name look-ups.
//
// A value; the functions are thread-safe.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ps {

class SocketAddress {
 public:
  // Any local IPv4 address, any port.
  SocketAddress() { raw_.v4.sin_family = AF_INET; }
  // The kernel's own; an IPv4 address in IPv6's form (::ffff:10.0.0.1) becomes the IPv4 address.
  // Empty for another family.
  static std::optional<SocketAddress> FromRaw(const sockaddr* raw);
  // An address in numbers, "*" (any local IPv4 address) or "::" (any local address).  Empty for a
  // name.
  static std::optional<SocketAddress> Parse(const std::string& host);
  // Where the socket `fd` is bound, and where its other end is.  Empty if the kernel does not say.
  static std::optional<SocketAddress> LocalOf(int fd);
  static std::optional<SocketAddress> PeerOf(int fd);

  const sockaddr* raw() const { return &raw_.any; }
  socklen_t size() const { return is_ipv6() ? sizeof(raw_.v6) : sizeof(raw_.v4); }
  int family() const { return raw_.any.sa_family; }
  bool is_ipv6() const { return family() == AF_INET6; }
  // True for an address that only this host can reach.
  bool is_loopback() const;
  // True for an IPv6 address that is valid on a single link only (fe80::/10).
  bool is_link_local() const;
  bool SameHost(const SocketAddress& other) const;
  int32_t port() const;
  void set_port(int32_t port);
  // "10.0.0.1" or "fd00::1".
  std::string host() const;

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } raw_ = {};
};

// The addresses of a host, or why there are none.
struct HostAddresses {
  // IPv4 addresses before IPv6 addresses: MXNet's own stores know only the first.  Port 0.
  std::vector<SocketAddress> found;
  std::string why;  // in the system's words; empty if some were found
};

// Blocks while a name is looked up.
HostAddresses LookUp(const std::string& host);
// The address of this host that packets to `address` leave from.  Empty if there is no route.
std::optional<SocketAddress> SourceFor(const SocketAddress& address);

}  // namespace ps
