// Which address this node shows to the others.
//
// Blocks while a name is looked up.  Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bytescheduler/config.h"
#include "bytescheduler/status.h"

namespace bs::api {

struct Interface {
  std::string name;
  std::string address;  // IPv4
  bool loopback;
};

// The interfaces that are up and have an IPv4 address, in the system's order.
std::vector<Interface> ListInterfaces();

// In this order: DMLC_NODE_HOST; the first interface whose name starts with DMLC_INTERFACE;
// 127.0.0.1 if the scheduler node's address is a loopback one or DMLC_LOCAL is set; the first IPv4
// address that is no loopback one.  kInvalidArgument saying what to set if there is none.
Result<std::string> OwnHost(const Config& config);

// Ok if this node can listen at `host`, an address, a name or an interface; else kInvalidArgument
// that begins with "SETTING=HOST: " and says what would do.
Status CheckOwnHost(std::string_view setting, const std::string& host);

// Why `host` has no address now, in the system's words; empty if it has one.
std::string WhyUnresolved(const std::string& host);

}  // namespace bs::api
