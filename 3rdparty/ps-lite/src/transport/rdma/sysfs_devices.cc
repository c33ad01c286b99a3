// Reads /sys/class/infiniband.
#include "transport/rdma/sysfs_devices.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "transport/rdma/whole_number.h"

namespace ps {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty if it cannot be read.
std::string LineOf(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The names in a folder, in order of numbers or of letters; none if it is not there.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    const std::optional<int> one = WholeNumber(a);
    const std::optional<int> other = WholeNumber(b);
    return one && other ? *one < *other : a < b;
  });
  return names;
}

std::optional<GidBytes> GidOf(const std::string& text) {
  GidBytes gid{};
  if (::inet_pton(AF_INET6, text.c_str(), gid.data()) != 1) return std::nullopt;
  if (gid == GidBytes{}) return std::nullopt;  // the entry is free
  return gid;
}

std::vector<RdmaGid> GidsIn(const fs::path& port, RdmaLayer layer) {
  std::vector<RdmaGid> gids;
  for (const std::string& name : NamesIn(port / "gids")) {
    const std::optional<int> index = WholeNumber(name);
    const std::optional<GidBytes> bytes = GidOf(LineOf(port / "gids" / name));
    if (!index || !bytes) continue;
    RdmaGid::Type type = RdmaGid::Type::kInfiniBand;
    if (layer == RdmaLayer::kEthernet) {
      const bool routable = LineOf(port / "gid_attrs" / "types" / name) == "RoCE v2";
      type = routable ? RdmaGid::Type::kRoceV2 : RdmaGid::Type::kRoceV1;
    }
    gids.push_back({.index = *index, .bytes = *bytes, .type = type});
  }
  return gids;
}

RdmaPort ReadPort(const fs::path& folder, int number, bool iwarp) {
  RdmaPort port{.number = number};
  if (!iwarp) {
    const bool infiniband = LineOf(folder / "link_layer") == "InfiniBand";
    port.layer = infiniband ? RdmaLayer::kInfiniBand : RdmaLayer::kEthernet;
  }
  const std::string state = LineOf(folder / "state");  // "4: ACTIVE"
  const size_t colon = state.find(": ");
  port.state = colon == std::string::npos ? state : state.substr(colon + 2);
  port.active = port.state == "ACTIVE";
  const std::string lid = LineOf(folder / "lid");  // "0x1a"
  if (lid.starts_with("0x")) {
    std::from_chars(lid.data() + 2, lid.data() + lid.size(), port.lid, 16);
  }
  port.gids = GidsIn(folder, port.layer);
  return port;
}

RdmaDevice ReadDevice(const fs::path& folder) {
  RdmaDevice device{.name = folder.filename()};
  device.numa_node = WholeNumber(LineOf(folder / "device" / "numa_node")).value_or(-1);
  const bool iwarp = LineOf(folder / "node_type").ends_with("RNIC");
  for (const std::string& name : NamesIn(folder / "ports")) {
    const std::optional<int> number = WholeNumber(name);
    if (number) device.ports.push_back(ReadPort(folder / "ports" / name, *number, iwarp));
  }
  const fs::path net = folder / "device" / "net";
  for (const std::string& interface : NamesIn(net)) {
    const int number = 1 + WholeNumber(LineOf(net / interface / "dev_port")).value_or(0);
    for (RdmaPort& port : device.ports) {
      if (port.number == number) port.interfaces.push_back(interface);
    }
  }
  return device;
}

}  // namespace

std::vector<RdmaDevice> DevicesInFiles(const std::string& root) {
  const fs::path folder = root + "/sys/class/infiniband";
  std::vector<RdmaDevice> devices;
  for (const std::string& name : NamesIn(folder)) devices.push_back(ReadDevice(folder / name));
  return devices;
}

}  // namespace ps
