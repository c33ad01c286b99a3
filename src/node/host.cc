// Finds this node's own address among the network interfaces, as ps-lite does.
#include "node/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace bs::api {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// The first IPv4 address of `host`; 0, or getaddrinfo's error.
int Resolve(const std::string& host, sockaddr_in* address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* raw = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &raw);
  if (error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(raw, freeaddrinfo);
  std::memcpy(address, raw->ai_addr, sizeof(*address));
  return 0;
}

// A name that cannot be looked up yet is no loopback one; the connection will say more.
bool IsLoopback(const std::string& host) {
  sockaddr_in address{};
  if (Resolve(host, &address) != 0) return false;
  constexpr uint32_t kLoopbackNet = 127;
  return ntohl(address.sin_addr.s_addr) >> 24 == kLoopbackNet;
}

// Asks the system itself, which knows more than a list of addresses (all of 127.0.0.0/8, say).
bool IsOwn(sockaddr_in address) {
  address.sin_port = 0;
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return true;  // the real attempt will say more
  const bool refused =
      ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == EADDRNOTAVAIL;
  ::close(probe);
  return !refused;
}

Result<std::string> AddressOf(const std::string& prefix, const std::vector<Interface>& interfaces) {
  std::string names;
  for (const Interface& interface : interfaces) {
    if (interface.name.starts_with(prefix)) return interface.address;
    names += (names.empty() ? "" : ", ") + interface.name;
  }
  return Status::InvalidArgument("DMLC_INTERFACE=" + prefix +
                                 ": no interface with an IPv4 address starts so; there are: " +
                                 (names.empty() ? "none" : names));
}

std::string Addresses(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    text += (text.empty() ? "" : ", ") + interface.address;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<Interface> ListInterfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(raw, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* const address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) == nullptr) continue;
    interfaces.push_back({entry->ifa_name, text.data(), (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

std::string WhyUnresolved(const std::string& host) {
  sockaddr_in address{};
  const int error = Resolve(host, &address);
  return error == 0 ? "" : gai_strerror(error);
}

Status CheckOwnHost(std::string_view setting, const std::string& host) {
  const std::vector<Interface> interfaces = ListInterfaces();
  const bool interface = std::any_of(interfaces.begin(), interfaces.end(),
                                     [&](const Interface& i) { return i.name == host; });
  if (interface) return Status::Ok();  // libzmq knows what to do with it
  sockaddr_in address{};
  const int error = Resolve(host, &address);
  if (error == 0 && IsOwn(address)) return Status::Ok();
  const std::string why =
      error == 0 ? "no address of this host"
                 : std::string("the name cannot be resolved (") + gai_strerror(error) + ")";
  return Status::InvalidArgument(std::string(setting) + "=" + host + ": " + why +
                                 "; this host has " + Addresses(interfaces));
}

Result<std::string> OwnHost(const Config& config) {
  if (!config.node_host.empty()) return config.node_host;
  const std::vector<Interface> interfaces = ListInterfaces();
  if (!config.interface.empty()) return AddressOf(config.interface, interfaces);
  if (config.local_ipc || IsLoopback(config.root_uri)) return std::string(kLoopback);
  for (const Interface& interface : interfaces) {
    if (!interface.loopback) return interface.address;
  }
  return Status::InvalidArgument(
      "no network interface has an IPv4 address but the loopback one: set DMLC_NODE_HOST to the "
      "address at which the others reach this node");
}

}  // namespace bs::api
