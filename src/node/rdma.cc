// Brings the node's address and the host's devices together.
#include "node/rdma.h"

#include <string>

#include "node/host.h"
#include "transport/socket_address.h"

namespace bs::api {

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
  return ps::ChooseRdmaPort(devices, local, ps::InterfaceOf(local), {});
}

}  // namespace bs::api
