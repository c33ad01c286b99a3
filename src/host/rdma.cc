// Brings the node's address and the host's devices together.
#include "host/rdma.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/memory.h"
#include "config/rdma_rules.h"
#include "host/host.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/rdma_memory.h"
#include "transport/socket_address.h"

namespace bs::host {
namespace {

Result<ps::RdmaWish> WishOf(const Config& config) {
  ps::RdmaWish wish;
  if (!config.rdma_device.empty()) {
    const Result<ps::RdmaWish> parsed = ps::ParseRdmaDevice(config.rdma_device);
    if (!parsed.ok()) {
      return Status::InvalidArgument("BYTESCHEDULER_RDMA_DEVICE: " + parsed.status().message());
    }
    wish = parsed.value();
  }
  wish.gid_index = config.rdma_gid;
  return wish;
}

// Memory that the connections to all peers have ready, before any data moves.
uint64_t SlotBytes(const Config& config) {
  const int32_t peers = config.role == "worker" ? config.num_servers : config.num_workers;
  return ps::RdmaBytesOfPeers(static_cast<uint32_t>(peers),
                              static_cast<uint32_t>(config.rdma_slots),
                              static_cast<uint32_t>(config.rdma_slot_bytes));
}

Status CheckLockedMemory(const Config& config, uint64_t limit, const Logger& log) {
  if (limit == ps::kNoLockedMemoryLimit) return Status::Ok();
  const uint64_t needed = SlotBytes(config);
  if (limit < needed) {
    return Status::Unavailable("RDMA needs " + std::to_string(needed >> 10U) +
                               " KiB of locked memory for its connections alone, and " +
                               ps::TextOfLockedMemory(limit));
  }
  log.Warning("RDMA copies what does not fit into locked memory: " + ps::TextOfLockedMemory(limit));
  return Status::Ok();
}

// Loans may last, so they leave half of the limit to blocks that READs land in.
uint64_t MostLentBytes(const Config& config, uint64_t limit) {
  const uint64_t wanted =
      config.rdma_pinned_bytes > 0 ? config.rdma_pinned_bytes : AvailableBytes() / 2;
  if (limit == ps::kNoLockedMemoryLimit) return wanted;
  const uint64_t taken = SlotBytes(config) + config.rdma_bounce_bytes;
  return std::min(wanted, (std::max(limit, taken) - taken) / 2);
}

}  // namespace

Result<ps::RdmaOptions> UseRdma(const Config& config, const std::shared_ptr<ps::Verbs>& verbs,
                                uint64_t locked_limit_bytes, const Logger& log) {
  const Result<std::vector<ps::RdmaDevice>> devices = verbs->Devices();
  if (!devices.ok()) return devices.status();
  const Result<ps::RdmaChoice> choice = ChooseRdma(config, devices.value());
  if (!choice.ok()) return choice.status();
  const auto device =
      std::ranges::find(devices.value(), choice.value().device, &ps::RdmaDevice::name);
  Status usable = ps::CheckRdmaPort(*device, choice.value().path.port);
  if (usable.ok()) usable = CheckLockedMemory(config, locked_limit_bytes, log);
  if (!usable.ok()) return usable;
  ps::RdmaOptions options;
  options.verbs = verbs;
  options.device = choice.value().device;
  options.path = choice.value().path;
  options.path.traffic_class = static_cast<uint8_t>(config.rdma_traffic_class);
  options.path.service_level = static_cast<uint8_t>(config.rdma_service_level);
  options.window_bytes = config.rdma_window_bytes;
  options.slot_bytes = static_cast<uint32_t>(config.rdma_slot_bytes);
  options.slots = static_cast<uint32_t>(config.rdma_slots);
  options.bounce_bytes = config.rdma_bounce_bytes;
  options.most_lent_bytes = MostLentBytes(config, locked_limit_bytes);
  if (options.verbs->fork() == ps::RdmaFork::kProtected) {
    log.Warning(
        "RDMA copies gradients: this kernel keeps registered memory from the child processes of "
        "fork(); Linux 5.12 or newer with rdma-core 35 or newer does not");
  }
  PlaceNear(choice.value().numa_node, DiscoverNumaNodes(), log, &options);
  return options;
}

Result<ps::RdmaChoice> ChooseRdma(const Config& config,
                                  const std::vector<ps::RdmaDevice>& devices) {
  if (devices.empty()) return ps::NoRdmaDevice();
  const Result<std::string> host = OwnHost(config);
  if (!host.ok()) return host.status();
  const ps::HostAddresses own = ps::LookUp(host.value());
  if (own.found.empty()) {
    return Status::Unavailable("the address of this node, " + host.value() +
                               ", cannot be resolved (" + own.why +
                               "): set DMLC_NODE_HOST or DMLC_INTERFACE");
  }
  const ps::SocketAddress& local = own.found.front();
  const Result<ps::RdmaWish> wish = WishOf(config);
  if (!wish.ok()) return wish.status();
  return ps::ChooseRdmaPort(devices, local, ps::InterfaceOf(local), wish.value());
}

Result<ps::RdmaOptions> UseRdma(const Config& config, const Logger& log) {
  const Result<std::shared_ptr<ps::Verbs>> verbs = ps::LoadVerbsLibrary({});
  if (!verbs.ok()) return verbs.status();
  return UseRdma(config, verbs.value(), ps::LockedMemoryLimit(), log);
}

void PlaceNear(int numa_node, const std::vector<NumaNode>& nodes, const Logger& log,
               ps::RdmaOptions* options) {
  const NumaNode* const node = FindNode(nodes, numa_node);
  if (node == nullptr) return;
  options->numa_node = node->id;
  options->cores = node->cores;
  if (CanPlaceOn(node->id)) return;
  log.Warning("the system does not let memory be placed on NUMA node " + std::to_string(node->id) +
              ", that of " + options->device +
              ", so memory for RDMA lies anywhere; in a container: --cap-add SYS_NICE");
}

Result<ps::RdmaOptions> MakeRdmaOptions(const Config& config, const Logger& log) {
  if (config.rdma == "0" || config.role == "scheduler" || !config::IsPlainTcp(config)) {
    return ps::RdmaOptions{};
  }
  Result<ps::RdmaOptions> options = UseRdma(config, log);
  if (options.ok()) return options;
  const std::string why = "DMLC_ENABLE_RDMA=" + config.rdma + ": " + options.status().message();
  if (config.RequiresRdma()) return Status::InvalidArgument(why);
  log.Warning(why + "; TCP carries all data");
  return ps::RdmaOptions{};
}

}  // namespace bs::host
