// Converts addresses, and asks the system for the addresses of a name and for routes.
#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/descriptors.h"

namespace ps {
namespace {

constexpr uint32_t kLoopbackNet = 127;  // the first byte of IPv4's loopback addresses
constexpr uint16_t kAnyPort = 9;        // no packet is sent there

using Names = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

std::optional<SocketAddress> Ask(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage raw{};
  socklen_t size = sizeof(raw);
  auto* const any = reinterpret_cast<sockaddr*>(&raw);
  if (ask(fd, any, &size) != 0) return std::nullopt;
  return SocketAddress::FromRaw(any);
}

}  // namespace

std::optional<SocketAddress> SocketAddress::FromRaw(const sockaddr* raw) {
  SocketAddress address;
  if (raw->sa_family == AF_INET) {
    std::memcpy(&address.raw_.v4, raw, sizeof(sockaddr_in));
    return address;
  }
  if (raw->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, raw, sizeof(v6));
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    address.raw_.v6 = v6;
    return address;
  }
  constexpr size_t kPrefixBytes = 12;
  address.raw_.v4.sin_port = v6.sin6_port;
  std::memcpy(&address.raw_.v4.sin_addr, &v6.sin6_addr.s6_addr[kPrefixBytes], sizeof(in_addr));
  return address;
}

std::optional<SocketAddress> SocketAddress::Parse(const std::string& host) {
  if (host == "*") return SocketAddress();
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    return FromRaw(reinterpret_cast<const sockaddr*>(&v4));
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  const size_t zone = host.find('%');
  if (zone != std::string::npos) {
    v6.sin6_scope_id = if_nametoindex(host.c_str() + zone + 1);
    if (v6.sin6_scope_id == 0) return std::nullopt;
  }
  if (inet_pton(AF_INET6, host.substr(0, zone).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  return FromRaw(reinterpret_cast<const sockaddr*>(&v6));
}

std::optional<SocketAddress> SocketAddress::LocalOf(int fd) { return Ask(fd, ::getsockname); }
std::optional<SocketAddress> SocketAddress::PeerOf(int fd) { return Ask(fd, ::getpeername); }

bool SocketAddress::is_loopback() const {
  if (is_ipv6()) return IN6_IS_ADDR_LOOPBACK(&raw_.v6.sin6_addr);
  return ntohl(raw_.v4.sin_addr.s_addr) >> 24U == kLoopbackNet;
}

bool SocketAddress::is_link_local() const {
  return is_ipv6() && IN6_IS_ADDR_LINKLOCAL(&raw_.v6.sin6_addr);
}

bool SocketAddress::SameHost(const SocketAddress& other) const {
  if (family() != other.family()) return false;
  if (is_ipv6()) return IN6_ARE_ADDR_EQUAL(&raw_.v6.sin6_addr, &other.raw_.v6.sin6_addr);
  return raw_.v4.sin_addr.s_addr == other.raw_.v4.sin_addr.s_addr;
}

int32_t SocketAddress::port() const {
  return ntohs(is_ipv6() ? raw_.v6.sin6_port : raw_.v4.sin_port);
}

void SocketAddress::set_port(int32_t port) {
  (is_ipv6() ? raw_.v6.sin6_port : raw_.v4.sin_port) = htons(static_cast<uint16_t>(port));
}

std::string SocketAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const bytes = is_ipv6() ? static_cast<const void*>(&raw_.v6.sin6_addr)
                                      : static_cast<const void*>(&raw_.v4.sin_addr);
  inet_ntop(family(), bytes, text.data(), text.size());
  return text.data();
}

HostAddresses LookUp(const std::string& host) {
  if (const auto parsed = SocketAddress::Parse(host)) return {.found = {*parsed}, .why = ""};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const int error = host.empty() ? EAI_NONAME : getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  if (error == EAI_SYSTEM) return {.found = {}, .why = bs::SystemError(errno)};
  if (error != 0) return {.found = {}, .why = gai_strerror(error)};
  const Names owner(raw, &freeaddrinfo);
  HostAddresses addresses;
  std::vector<SocketAddress> by_ipv6;
  for (const addrinfo* entry = raw; entry != nullptr; entry = entry->ai_next) {
    if (const auto address = SocketAddress::FromRaw(entry->ai_addr)) {
      (address->is_ipv6() ? by_ipv6 : addresses.found).push_back(*address);
    }
  }
  addresses.found.insert(addresses.found.end(), by_ipv6.begin(), by_ipv6.end());
  if (addresses.found.empty()) addresses.why = gai_strerror(EAI_NONAME);
  return addresses;
}

std::optional<SocketAddress> SourceFor(const SocketAddress& address) {
  SocketAddress there = address;
  there.set_port(kAnyPort);
  // Connecting a datagram socket only looks the route up.
  const int probe = ::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return std::nullopt;
  std::optional<SocketAddress> source;
  if (::connect(probe, there.raw(), there.size()) == 0) source = SocketAddress::LocalOf(probe);
  ::close(probe);
  if (source) source->set_port(0);
  return source;
}

}  // namespace ps
