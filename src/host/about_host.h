// Facts about this host, as the engine itself finds them, for people that search a fault.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace bs::host {

// A row: its kind, its name and its value.
//   "kernels"    name of the summation kernels that servers use     ""
//   "numa"       number of the node                                 its cores, with blanks between
//   "quota"      processors that the control group allows, "0.5"    ""; no row without a quota
//   "interface"  name of an interface that is up                    its address
//   "address"    the address that this node shows, or ""            why there is none, or ""
//   "route"      the address of this host that the route to the scheduler node leaves from    ""
//   "rdma_port"    "mlx5_0:1": device and port       its state and further facts
//   "rdma_gid"     "mlx5_0:1/3": an address of it    the address and its kind
//   "rdma_choice"  the port that this node would use, or ""    its address, or why there is none
//   "rdma_memory"  ""      the limit of locked memory and the remedy, or ""; only with a device
//   "rdma_fork"    "harmless", or "protected": a child may not touch registered memory    ""
struct HostFact {
  std::string what;
  std::string name;
  std::string value;
};

// Blocks while the scheduler node's name is looked up.  Thread-safe.
std::vector<HostFact> AboutHost(const Config& config);

}  // namespace bs::host
