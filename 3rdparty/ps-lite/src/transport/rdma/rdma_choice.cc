// Narrows the ports down by the settings, by state and by address; names the step that leaves no
// port.
#include "transport/rdma/rdma_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "transport/rdma/whole_number.h"

namespace ps {
namespace {

GidBytes GidOf(const SocketAddress& address) {
  GidBytes gid{};
  if (address.is_ipv6()) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.raw());
    std::memcpy(gid.data(), &v6->sin6_addr, gid.size());
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address.raw());
    gid[10] = gid[11] = std::byte{0xff};
    std::memcpy(&gid[12], &v4->sin_addr, 4);
  }
  return gid;
}

bool IsIpv4(const GidBytes& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10,
                     [](std::byte byte) { return byte == std::byte{0}; }) &&
         gid[10] == std::byte{0xff} && gid[11] == std::byte{0xff};
}

bool IsLinkLocal(const GidBytes& gid) {
  return gid[0] == std::byte{0xfe} && (gid[1] & std::byte{0xc0}) == std::byte{0x80};
}

bool IsRoutable(const RdmaGid& gid) { return gid.type == RdmaGid::Type::kRoceV2; }

struct Candidate {
  const RdmaDevice* device;
  const RdmaPort* port;
};

std::string NameOf(const Candidate& candidate) {
  return candidate.device->name + " port " + std::to_string(candidate.port->number);
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The ports that the wish leaves.
bs::Result<std::vector<Candidate>> Wished(const std::vector<RdmaDevice>& devices,
                                          const RdmaWish& wish) {
  std::vector<std::string> names;
  std::vector<Candidate> candidates;
  bool named = wish.device.empty();
  for (const RdmaDevice& device : devices) {
    names.push_back(device.name);
    if (!wish.device.empty() && wish.device != device.name) continue;
    named = true;
    for (const RdmaPort& port : device.ports) {
      if (wish.port == 0 || wish.port == port.number) candidates.push_back({&device, &port});
    }
  }
  if (!named) {
    return bs::Status::Unavailable("there is no RDMA device " + wish.device +
                                   ": set BYTESCHEDULER_RDMA_DEVICE to one of " + Joined(names));
  }
  if (candidates.empty()) {
    return bs::Status::Unavailable(wish.port == 0
                                       ? Joined(names) + " shows no port: the driver is not ready"
                                       : wish.device + " has no port " + std::to_string(wish.port) +
                                             ": set BYTESCHEDULER_RDMA_DEVICE to another");
  }
  return candidates;
}

bs::Status IsIwarp(const RdmaDevice& device) {
  return bs::Status::Unavailable(device.name +
                                 " is an iWARP device, which is not supported: use TCP");
}

bs::Status IsDown(const RdmaDevice& device, const RdmaPort& port) {
  return bs::Status::Unavailable(device.name + ": port " + std::to_string(port.number) + " is " +
                                 port.state + ": bring its link up (ip link, ibstat)");
}

// Leaves the ports that can carry traffic now.
bs::Status LeaveUsable(std::vector<Candidate>* candidates) {
  const auto iwarp = [](const Candidate& candidate) {
    return candidate.port->layer == RdmaLayer::kOther;
  };
  if (std::ranges::all_of(*candidates, iwarp)) {
    return IsIwarp(*candidates->front().device);
  }
  std::erase_if(*candidates, iwarp);
  const Candidate first = candidates->front();
  std::erase_if(*candidates, [](const Candidate& candidate) { return !candidate.port->active; });
  if (!candidates->empty()) return bs::Status::Ok();
  return IsDown(*first.device, *first.port);
}

RdmaChoice ChoiceOf(const Candidate& candidate, const RdmaGid& gid) {
  return {.device = candidate.device->name,
          .path = {.port = candidate.port->number, .gid_index = gid.index},
          .numa_node = candidate.device->numa_node};
}

const RdmaGid* EntryOf(const RdmaPort& port, const GidBytes& gid) {
  const auto entry = std::ranges::find_if(
      port.gids, [&](const RdmaGid& e) { return IsRoutable(e) && e.bytes == gid; });
  return entry == port.gids.end() ? nullptr : &*entry;
}

// A routable entry of a port that was named although it lacks the address.
const RdmaGid* RoutableEntryOf(const RdmaPort& port) {
  const RdmaGid* found = nullptr;
  for (const RdmaGid& entry : port.gids) {
    if (!IsRoutable(entry) || IsLinkLocal(entry.bytes)) continue;
    if (found == nullptr || (!IsIpv4(found->bytes) && IsIpv4(entry.bytes))) found = &entry;
  }
  return found;
}

bool HasInterface(const RdmaPort& port, const std::string& interface) {
  return !interface.empty() &&
         std::ranges::find(port.interfaces, interface) != port.interfaces.end();
}

// "mlx5_0 has 192.168.1.5, mlx5_1 has no address"
std::string AddressesOf(const std::vector<Candidate>& candidates) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : candidates) {
    const RdmaGid* entry = RoutableEntryOf(*candidate.port);
    texts.push_back(candidate.device->name + " has " +
                    (entry == nullptr ? "no address" : TextOfGid(entry->bytes)));
  }
  return Joined(texts);
}

bs::Result<RdmaChoice> ByIndex(const std::vector<Candidate>& candidates,
                               const Candidate* by_address, int index) {
  const Candidate& candidate = by_address != nullptr ? *by_address : candidates.front();
  for (const RdmaGid& entry : candidate.port->gids) {
    if (entry.index == index) return ChoiceOf(candidate, entry);
  }
  return bs::Status::Unavailable(NameOf(candidate) + " has no GID " + std::to_string(index) +
                                 ": unset BYTESCHEDULER_RDMA_GID, or see bytescheduler doctor");
}

// The port that has the address, or null.
const Candidate* ByAddress(const std::vector<Candidate>& candidates, const GidBytes& gid,
                           const std::string& interface) {
  for (const Candidate& candidate : candidates) {
    const bool has = candidate.port->layer == RdmaLayer::kEthernet
                         ? EntryOf(*candidate.port, gid) != nullptr
                         : HasInterface(*candidate.port, interface);
    if (has) return &candidate;
  }
  return nullptr;
}

bs::Result<RdmaChoice> OnInfiniBand(const Candidate& candidate) {
  if (!candidate.port->gids.empty()) return ChoiceOf(candidate, candidate.port->gids.front());
  return bs::Status::Unavailable(NameOf(candidate) +
                                 " shows no GID: start the subnet manager, or give the container "
                                 "the network of the host");
}

}  // namespace

bs::Result<RdmaWish> ParseRdmaDevice(const std::string& text) {
  RdmaWish wish;
  const size_t colon = text.find(':');
  wish.device = text.substr(0, colon);
  const bool plain = wish.device.find_first_of("/ \t") == std::string::npos;
  if (colon != std::string::npos) {
    wish.port = WholeNumber(std::string_view(text).substr(colon + 1)).value_or(-1);
  }
  const bool good = plain && (colon == std::string::npos ||
                              (!wish.device.empty() && wish.port >= 1 && wish.port <= 255));
  if (good) return wish;
  return bs::Status::InvalidArgument("\"" + text +
                                     "\" is no RDMA device: write mlx5_0 or mlx5_0:1");
}

bs::Result<RdmaChoice> ChooseRdmaPort(const std::vector<RdmaDevice>& devices,
                                      const SocketAddress& local, const std::string& interface,
                                      const RdmaWish& wish) {
  if (devices.empty()) return NoRdmaDevice();
  bs::Result<std::vector<Candidate>> wished = Wished(devices, wish);
  if (!wished.ok()) return wished.status();
  std::vector<Candidate>& candidates = wished.value();
  const bs::Status usable = LeaveUsable(&candidates);
  if (!usable.ok()) return usable;

  const GidBytes gid = GidOf(local);
  const Candidate* found = ByAddress(candidates, gid, interface);
  if (wish.gid_index >= 0) return ByIndex(candidates, found, wish.gid_index);
  if (found == nullptr && (!wish.device.empty() || candidates.size() == 1)) {
    const Candidate& only = candidates.front();
    if (only.port->layer != RdmaLayer::kEthernet) return OnInfiniBand(only);
    const RdmaGid* entry = wish.device.empty() ? nullptr : RoutableEntryOf(*only.port);
    if (entry != nullptr) return ChoiceOf(only, *entry);
  }
  if (found == nullptr) {
    return bs::Status::Unavailable("no RDMA device has the address " + local.host() + " (" +
                                   AddressesOf(candidates) +
                                   "): set DMLC_INTERFACE or BYTESCHEDULER_RDMA_DEVICE");
  }
  if (found->port->layer != RdmaLayer::kEthernet) return OnInfiniBand(*found);
  return ChoiceOf(*found, *EntryOf(*found->port, gid));
}

const RdmaPort* FindRdmaPort(const RdmaDevice& device, int port) {
  const auto found = std::ranges::find(device.ports, port, &RdmaPort::number);
  return found == device.ports.end() ? nullptr : &*found;
}

bs::Status CheckRdmaPort(const RdmaDevice& device, int port) {
  const RdmaPort* const found = FindRdmaPort(device, port);
  if (found == nullptr) {
    return bs::Status::Unavailable(device.name + ": port " + std::to_string(port) +
                                   " is not there: set BYTESCHEDULER_RDMA_DEVICE to another");
  }
  if (found->layer == RdmaLayer::kOther) return IsIwarp(device);
  if (!found->active) return IsDown(device, *found);
  if (device.most_reads > 0 && device.most_answered_reads > 0) return bs::Status::Ok();
  return bs::Status::Unavailable(device.name +
                                 " allows no READs (max_qp_rd_atom), which RDMA needs here: set "
                                 "BYTESCHEDULER_RDMA_DEVICE to another, or use TCP");
}

std::string InterfaceOf(const SocketAddress& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(all, &::freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const std::optional<SocketAddress> own = SocketAddress::FromRaw(each->ifa_addr);
    if (own && own->SameHost(address)) return each->ifa_name;
  }
  return "";
}

std::string TextOfGid(const GidBytes& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IsIpv4(gid)) {
    ::inet_ntop(AF_INET, &gid[12], text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  }
  return text.data();
}

bs::Status NoRdmaDevice() {
  return bs::Status::Unavailable(
      "this host shows no RDMA device: load the driver of the card, or start the container with "
      "--device /dev/infiniband");
}

}  // namespace ps
