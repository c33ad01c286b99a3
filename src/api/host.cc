// Finds this node's own address among the network interfaces, as ps-lite does.
#include "api/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <memory>
#include <vector>

namespace bs::api {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

struct Interface {
  std::string name;
  std::string address;
  bool loopback;
};

// The interfaces that are up and have an IPv4 address, in the system's order.
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

// A name that cannot be looked up yet is no loopback one; the connection will say more.
bool IsLoopback(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* raw = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &raw) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(raw, freeaddrinfo);
  constexpr uint32_t kLoopbackNet = 127;
  const auto* const address = reinterpret_cast<const sockaddr_in*>(raw->ai_addr);
  return ntohl(address->sin_addr.s_addr) >> 24 == kLoopbackNet;
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

}  // namespace

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
