// The address that this node shows to other nodes.
//
// Blocks while a name is looked up.  Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace bs::host {

struct Interface {
  std::string name;
  std::string address;  // IPv4 or IPv6
  bool loopback;
};

// The interfaces that are up, a row for each address that other hosts may reach or that is a
// loopback address, in the system's order.
std::vector<Interface> ListInterfaces();

// The address of the interface with exactly that name, else of the first whose name starts so.
// kInvalidArgument if there is none, or the interface of exactly that name has no such address.
Result<std::string> InterfaceAddress(const std::string& wanted,
                                     const std::vector<Interface>& interfaces, bool ipv6);

// In this order: DMLC_NODE_HOST, or the address of the interface that it names; the address of the
// interface DMLC_INTERFACE, or of the first whose name starts so; a loopback address if the
// scheduler node has a loopback address or DMLC_LOCAL is set; the address that the route to the
// scheduler node leaves from; the first other address.  An IPv6 address only if the scheduler node
// has no IPv4 address.  kInvalidArgument that names the setting to set, if there is none.
Result<std::string> OwnHost(const Config& config);

// Ok if this node can listen at `host`, an address, a name or an interface; else kInvalidArgument
// that begins with "SETTING=HOST: " and names usable values.
Status CheckOwnHost(std::string_view setting, const std::string& host);

// The address that DMLC_PS_ROOT_URI stands for; empty if it has none now.
std::string RootHost(const Config& config);

// Why `host` has no address now, in the system's words; empty if it has an address.
std::string WhyUnresolved(const std::string& host);

// Ok if every host name that this node needs to start has an address now, a route leads to the
// scheduler node, and the node's own addresses are usable.  Else kUnavailable: that may change, as
// a new pod's name is known late.  Names the setting, and the system's reason.
Status CheckNames(const Config& config);

// The address of this host that packets to the scheduler node leave from; empty if it has no
// address, or no route leads there.
std::string RouteAddress(const Config& config);

// The address at which a scheduler node listens that may not have DMLC_PS_ROOT_URI itself, as in a
// pod: every address of the host.
std::string EveryAddress(const Config& config);

// True if the scheduler node's address is an IPv6 address, or the name of such addresses only.
bool RootIsIpv6(const Config& config);

// Sentences, each beginning with the setting, about loopback addresses where other hosts are
// expected: a name that /etc/hosts sends there, or a node of a job with its scheduler node
// elsewhere.
std::vector<std::string> LoopbackWarnings(const Config& config);

}  // namespace bs::host
