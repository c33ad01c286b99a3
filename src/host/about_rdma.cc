// Puts devices, ports and addresses into rows.
#include "host/about_rdma.h"

#include <memory>
#include <string>
#include <utility>

#include "host/rdma.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/sysfs_devices.h"

namespace bs::host {
namespace {

std::string NameOf(ps::RdmaLayer layer) {
  if (layer == ps::RdmaLayer::kEthernet) return "Ethernet";
  return layer == ps::RdmaLayer::kInfiniBand ? "InfiniBand" : "iWARP";
}

std::string NameOf(ps::RdmaGid::Type type) {
  if (type == ps::RdmaGid::Type::kRoceV2) return "RoCE v2";
  return type == ps::RdmaGid::Type::kRoceV1 ? "RoCE v1" : "InfiniBand";
}

std::string NameOf(const std::string& device, int port) {
  return device + ":" + std::to_string(port);
}

std::string Describe(const ps::RdmaDevice& device, const ps::RdmaPort& port) {
  std::string text = port.state + ", " + NameOf(port.layer);
  if (port.mtu_bytes > 0) text += ", MTU " + std::to_string(port.mtu_bytes);
  for (const std::string& interface : port.interfaces) text += ", interface " + interface;
  if (device.numa_node >= 0) text += ", NUMA node " + std::to_string(device.numa_node);
  if (device.relaxed_ordering) text += ", relaxed ordering";
  return text;
}

HostFact ChoiceRow(const Result<ps::RdmaChoice>& choice) {
  if (!choice.ok()) return {"rdma_choice", "", choice.status().message()};
  const ps::RdmaPath& path = choice.value().path;
  return {"rdma_choice", NameOf(choice.value().device, path.port),
          "GID " + std::to_string(path.gid_index)};
}

void AddPort(const ps::RdmaDevice& device, const ps::RdmaPort& port, std::vector<HostFact>* facts) {
  const std::string name = NameOf(device.name, port.number);
  facts->push_back({"rdma_port", name, Describe(device, port)});
  for (const ps::RdmaGid& gid : port.gids) {
    facts->push_back({"rdma_gid", name + "/" + std::to_string(gid.index),
                      ps::TextOfGid(gid.bytes) + " (" + NameOf(gid.type) + ")"});
  }
}

}  // namespace

RdmaOfHost LookAtRdma(const std::string& root) {
  RdmaOfHost found;
  found.devices = ps::DevicesInFiles(root);
  if (found.devices.empty()) return found;
  found.locked_limit_bytes = ps::LockedMemoryLimit();
  const Result<std::shared_ptr<ps::Verbs>> verbs = ps::LoadVerbsLibrary({.root = root});
  found.usable = verbs.status();
  if (!verbs.ok()) return found;
  found.fork = verbs.value()->fork();
  Result<std::vector<ps::RdmaDevice>> opened = verbs.value()->Devices();
  found.usable = opened.status();
  if (opened.ok()) found.devices = std::move(opened.value());
  return found;
}

std::vector<HostFact> AboutRdma(const Config& config, const RdmaOfHost& found) {
  std::vector<HostFact> facts;
  for (const ps::RdmaDevice& device : found.devices) {
    for (const ps::RdmaPort& port : device.ports) AddPort(device, port, &facts);
  }
  facts.push_back(ChoiceRow(found.usable.ok() ? ChooseRdma(config, found.devices)
                                              : Result<ps::RdmaChoice>(found.usable)));
  if (found.devices.empty()) return facts;
  facts.push_back({"rdma_memory", "", ps::TextOfLockedMemory(found.locked_limit_bytes)});
  if (found.fork) {
    const bool harmless = *found.fork == ps::RdmaFork::kHarmless;
    facts.push_back({"rdma_fork", harmless ? "harmless" : "protected", ""});
  }
  return facts;
}

}  // namespace bs::host
