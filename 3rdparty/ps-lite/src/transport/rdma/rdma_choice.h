// The choice of an RDMA device, a port and an address for the connections of a node.
//
// The local address of a node chooses: "the first device" or "index 3" differ between hosts.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transport/rdma/verbs.h"
#include "transport/socket_address.h"

namespace ps {

// The choice of a user; each field that is set narrows it.
struct RdmaWish {
  std::string device{};  // empty: the device that has the address
  int port = 0;          // 0: any
  int gid_index = -1;    // -1: the entry of the address
};

// Reads "mlx5_0" or "mlx5_0:2" into device and port.  kInvalidArgument names the text.
bs::Result<RdmaWish> ParseRdmaDevice(const std::string& text);

struct RdmaChoice {
  std::string device{};
  RdmaPath path{};  // port and gid_index
  int numa_node = -1;
};

// Chooses for a node whose own address is `local`.  On Ethernet it takes the port that has a GID of
// RoCE v2 for this address, on InfiniBand the port whose interface has it.  Without such a port it
// takes the only active port.  `interface` is the network interface that has the address, empty if
// none has.  The message of kUnavailable names the failed step and the remedy.
bs::Result<RdmaChoice> ChooseRdmaPort(const std::vector<RdmaDevice>& devices,
                                      const SocketAddress& local, const std::string& interface,
                                      const RdmaWish& wish);

// The port of this number, or null.
const RdmaPort* FindRdmaPort(const RdmaDevice& device, int port);

// Checks that the port of an opened device can carry links now.  The message of kUnavailable gives
// the reason and the remedy.
bs::Status CheckRdmaPort(const RdmaDevice& device, int port);

// The network interface of this host that has the address; empty if none has.
std::string InterfaceOf(const SocketAddress& address);

// "192.168.1.5" for the GID of an IPv4 address, otherwise as IPv6 is written.
std::string TextOfGid(const GidBytes& gid);

// The error of a host without a device, with the remedy.
bs::Status NoRdmaDevice();

}  // namespace ps
