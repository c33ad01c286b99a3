// Facts about this host, as the engine itself finds them, for people that search a fault.
#pragma once

#include <string>
#include <vector>

#include "bytescheduler/config.h"

namespace bs::api {

// One row: what it is, which one, and what it is worth.
//   "kernels"    name of the summation kernels that servers use     ""
//   "numa"       number of the node                                 its cores, with blanks between
//   "quota"      processors that the control group allows, "0.5"    ""; no row without a quota
//   "interface"  name of one that is up                             its address
//   "address"    the one this node shows to the others, or ""       why there is none, or ""
//   "route"      the address of this host that the route to the scheduler node leaves from    ""
struct HostFact {
  std::string what;
  std::string name;
  std::string value;
};

// Blocks while the scheduler node's name is looked up.  Thread-safe.
std::vector<HostFact> AboutHost(const Config& config);

}  // namespace bs::api
