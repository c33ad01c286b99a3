// Asks the layers below what they found on this host.
#include "host/about_host.h"

#include <cmath>
#include <utility>

#include "base/numa.h"
#include "base/processors.h"
#include "host/about_rdma.h"
#include "host/host.h"
#include "reduce/reduce.h"

namespace bs::host {

std::vector<HostFact> AboutHost(const Config& config) {
  std::vector<HostFact> facts;
  facts.push_back({"kernels", std::string(reduce::BestKernels().name), ""});
  for (const NumaNode& node : DiscoverNumaNodes()) {
    std::string cores;
    for (const int core : node.cores) {
      cores += (cores.empty() ? "" : " ") + std::to_string(core);
    }
    facts.push_back({"numa", std::to_string(node.id), cores});
  }
  if (const double quota = ProcessorQuota(); std::isfinite(quota)) {
    facts.push_back({"quota", std::to_string(quota), ""});
  }
  for (const Interface& interface : ListInterfaces()) {
    facts.push_back({"interface", interface.name, interface.address});
  }
  const Result<std::string> own = OwnHost(config);
  facts.push_back(own.ok() ? HostFact{"address", own.value(), ""}
                           : HostFact{"address", "", own.status().message()});
  const std::string route = RouteAddress(config);
  if (!route.empty()) facts.push_back({"route", route, ""});
  for (HostFact& fact : AboutRdma(config, LookAtRdma())) facts.push_back(std::move(fact));
  return facts;
}

}  // namespace bs::host
