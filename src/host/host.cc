// Finds this node's own address: by settings, or by the route to the scheduler node.
#include "host/host.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "transport/socket_address.h"

namespace bs::host {
namespace {

using ps::SocketAddress;

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kLoopback6 = "::1";

bool IsNumeric(const std::string& host) { return SocketAddress::Parse(host).has_value(); }

bool IsIpv6(const std::string& host) {
  const std::optional<SocketAddress> address = SocketAddress::Parse(host);
  return address && address->is_ipv6();
}

// Asks the system itself, which knows more than a list of addresses (all of 127.0.0.0/8, say).
bool IsOwn(SocketAddress address) {
  address.set_port(0);
  const int probe = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return true;  // the real attempt will say more
  const bool refused = ::bind(probe, address.raw(), address.size()) != 0 && errno == EADDRNOTAVAIL;
  ::close(probe);
  return !refused;
}

// True for names that mean this host everywhere.
bool NamesThisHost(const std::string& name) {
  return name == "localhost" || name.starts_with("localhost.") || name.ends_with(".localhost") ||
         name == "ip6-localhost" || name == "ip6-loopback" || name == "localhost6";
}

bool IsLoopback(const std::vector<SocketAddress>& found) {
  return !found.empty() && found.front().is_loopback();
}

std::string Addresses(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    text += (text.empty() ? "" : ", ") + interface.address;
  }
  return text.empty() ? "none" : text;
}

// The first address with a route; else the first address, and none for unknown names.
std::optional<SocketAddress> RootAddress(const Config& config) {
  const std::vector<SocketAddress> found = ps::LookUp(config.root_uri).found;
  if (found.empty()) return std::nullopt;
  const auto best = std::find_if(found.begin(), found.end(), [](const SocketAddress& address) {
    return ps::SourceFor(address).has_value();
  });
  return best == found.end() ? found.front() : *best;
}

}  // namespace

std::vector<Interface> ListInterfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(raw, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::optional<SocketAddress> address = SocketAddress::FromRaw(entry->ifa_addr);
    if (!address || address->is_link_local()) continue;
    interfaces.push_back(
        {entry->ifa_name, address->host(), (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

Result<std::string> InterfaceAddress(const std::string& wanted,
                                     const std::vector<Interface>& interfaces, bool ipv6) {
  const Interface* found = nullptr;
  bool exists = false;
  std::string names;
  for (const Interface& interface : interfaces) {
    const bool exact = interface.name == wanted;
    exists = exists || exact;
    if (IsIpv6(interface.address) != ipv6) continue;
    if (exact) return interface.address;
    if (found == nullptr && interface.name.starts_with(wanted)) found = &interface;
    if ((", " + names + ",").find(", " + interface.name + ",") != std::string::npos) continue;
    names += (names.empty() ? "" : ", ") + interface.name;
  }
  if (found != nullptr && !exists) return found->address;
  const std::string address = ipv6 ? "IPv6 address" : "IPv4 address";
  return Status::InvalidArgument(
      "DMLC_INTERFACE=" + wanted + ": " +
      (exists ? "that interface has no " + address + ", as the scheduler node has"
              : "no interface with an " + address + " starts so") +
      "; there are: " + (names.empty() ? "none" : names));
}

std::string WhyUnresolved(const std::string& host) { return ps::LookUp(host).why; }

namespace {

// Ok unless `host` is an address that this host has and cannot use yet: for a second or two the
// system looks whether another host has the same IPv6 address.
Status CheckUsable(const std::string& setting, const std::string& host) {
  const std::vector<SocketAddress> found = ps::LookUp(host).found;
  const std::vector<Interface> interfaces = ListInterfaces();
  const auto listed = [&](const SocketAddress& address) {
    return std::any_of(interfaces.begin(), interfaces.end(),
                       [&](const Interface& i) { return i.address == address.host(); });
  };
  const auto early = std::find_if(found.begin(), found.end(), [&](const SocketAddress& address) {
    return listed(address) && !IsOwn(address);
  });
  if (early == found.end()) return Status::Ok();
  return Status::Unavailable(setting + "=" + host + ": this host cannot use its address " +
                             early->host() + " yet");
}

}  // namespace

Status CheckNames(const Config& config) {
  if (config.local_ipc) return Status::Ok();
  const bool scheduler = config.role == "scheduler";
  // The scheduler node in a pod does not use the name of the service in front of it.
  if (!scheduler || !config.use_kubernetes) {
    const std::string why = WhyUnresolved(config.root_uri);
    if (!why.empty()) {
      return Status::Unavailable("DMLC_PS_ROOT_URI=" + config.root_uri +
                                 ": the name cannot be resolved (" + why + ")");
    }
  }
  if (scheduler && !config.use_kubernetes) {
    return CheckUsable("DMLC_PS_ROOT_URI", config.root_uri);
  }
  if (scheduler) return Status::Ok();
  if (config.node_host.empty() && config.interface.empty() && RouteAddress(config).empty()) {
    return Status::Unavailable("DMLC_PS_ROOT_URI=" + config.root_uri +
                               ": no route leads there from this host");
  }
  if (config.node_host.empty()) return Status::Ok();
  if (Status early = CheckUsable("DMLC_NODE_HOST", config.node_host); !early.ok()) return early;
  const std::string why =
      CheckOwnHost("DMLC_NODE_HOST", config.node_host).ok() ? "" : WhyUnresolved(config.node_host);
  if (why.empty()) return Status::Ok();
  return Status::Unavailable("DMLC_NODE_HOST=" + config.node_host +
                             ": the name cannot be resolved (" + why + ")");
}

Status CheckOwnHost(std::string_view setting, const std::string& host) {
  const std::vector<Interface> interfaces = ListInterfaces();
  const bool interface = std::any_of(interfaces.begin(), interfaces.end(),
                                     [&](const Interface& i) { return i.name == host; });
  if (interface) return Status::Ok();  // libzmq resolves it
  const ps::HostAddresses addresses = ps::LookUp(host);
  if (std::any_of(addresses.found.begin(), addresses.found.end(), IsOwn)) return Status::Ok();
  const bool resolved = addresses.why.empty();
  std::string text = std::string(setting) + "=" + host + ": ";
  text +=
      resolved ? "no address of this host" : "the name cannot be resolved (" + addresses.why + ")";
  if (resolved && !IsNumeric(host)) text += " (it is " + addresses.found.front().host() + ")";
  text += "; this host has " + Addresses(interfaces);
  if (resolved && setting == "DMLC_PS_ROOT_URI") {
    text +=
        ". Start the scheduler node on the host that has it; in a pod or behind NAT set "
        "DMLC_USE_KUBERNETES=1";
  }
  return Status::InvalidArgument(text);
}

std::string RouteAddress(const Config& config) {
  const std::optional<SocketAddress> root = RootAddress(config);
  const std::optional<SocketAddress> source = root ? ps::SourceFor(*root) : std::nullopt;
  return source ? source->host() : "";
}

std::string RootHost(const Config& config) {
  const std::optional<SocketAddress> root = RootAddress(config);
  return root ? root->host() : "";
}

std::string EveryAddress(const Config& config) {
  constexpr const char* kEvery = "0.0.0.0";
  constexpr const char* kEvery6 = "::";
  if (const auto root = RootAddress(config)) return root->is_ipv6() ? kEvery6 : kEvery;
  bool ipv4 = false;
  bool ipv6 = false;
  for (const Interface& interface : ListInterfaces()) {
    if (!interface.loopback) (IsIpv6(interface.address) ? ipv6 : ipv4) = true;
  }
  return ipv6 && !ipv4 ? kEvery6 : kEvery;
}

bool RootIsIpv6(const Config& config) {
  const std::optional<SocketAddress> root = RootAddress(config);
  return root && root->is_ipv6();
}

Result<std::string> OwnHost(const Config& config) {
  const std::vector<Interface> interfaces = ListInterfaces();
  if (!config.node_host.empty()) {
    const auto named = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&](const Interface& i) { return i.name == config.node_host; });
    // Another host could not resolve its name.
    return named == interfaces.end() ? config.node_host : named->address;
  }
  if (config.interface.empty() && config.local_ipc) return std::string(kLoopback);
  const std::optional<SocketAddress> root = RootAddress(config);
  const bool ipv6 = root && root->is_ipv6();
  if (!config.interface.empty()) return InterfaceAddress(config.interface, interfaces, ipv6);
  if (root && root->is_loopback()) return std::string(ipv6 ? kLoopback6 : kLoopback);
  if (root) {
    if (const auto source = ps::SourceFor(*root)) return source->host();
  }
  // No route yet, or the name is unknown.
  for (const Interface& interface : interfaces) {
    if (!interface.loopback && IsIpv6(interface.address) == ipv6) return interface.address;
  }
  return Status::InvalidArgument(std::string("no network interface has an ") +
                                 (ipv6 ? "IPv6" : "IPv4") +
                                 " address but the loopback one: set DMLC_NODE_HOST to the "
                                 "address at which the others reach this node");
}

std::vector<std::string> LoopbackWarnings(const Config& config) {
  std::vector<std::string> warnings;
  if (config.local_ipc) return warnings;
  const std::vector<SocketAddress> root = ps::LookUp(config.root_uri).found;
  const bool meant = IsNumeric(config.root_uri) || NamesThisHost(config.root_uri);
  const bool pod = config.role == "scheduler" && config.use_kubernetes;
  if (IsLoopback(root) && !meant && !pod) {
    warnings.push_back("DMLC_PS_ROOT_URI=" + config.root_uri + " is " + root.front().host() +
                       " on this host, a loopback address, which no other host reaches: give the "
                       "address of the network, or correct /etc/hosts");
  }
  if (config.role == "scheduler" || root.empty() || IsLoopback(root)) return warnings;
  const Result<std::string> host = OwnHost(config);
  if (!host.ok()) return warnings;
  const std::vector<SocketAddress> own = ps::LookUp(host.value()).found;
  const bool everywhere =
      !own.empty() && (own.front().host() == "0.0.0.0" || own.front().host() == "::");
  if (!IsLoopback(own) && !everywhere) return warnings;
  const std::string setting = !config.node_host.empty()   ? "DMLC_NODE_HOST=" + config.node_host
                              : !config.interface.empty() ? "DMLC_INTERFACE=" + config.interface
                                                          : "this node";
  warnings.push_back(setting + " is " + own.front().host() + ", " +
                     (everywhere ? "which stands for every address" : "a loopback address") +
                     ", and DMLC_PS_ROOT_URI=" + config.root_uri +
                     " is not: no other host reaches this node there");
  return warnings;
}

}  // namespace bs::host
