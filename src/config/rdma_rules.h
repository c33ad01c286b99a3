// Rules of the settings of RDMA that no row of the table can hold, and the names that BytePS has.
//
// Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace bs::config {

// Why DMLC_ENABLE_RDMA cannot be a value that BytePS takes; empty for any other text.
std::string WhyNoRdmaOf(std::string_view value);

// True where our own sockets carry everything, and not libzmq: RDMA may then be beside them.
bool IsPlainTcp(const Config& config);

// Ok unless RDMA is required together with a setting that rules it out.
Status CheckRdma(const Config& config);

// True for the name of a setting of BytePS's RDMA, which has no effect here.
bool IsRdmaOfByteps(std::string_view name);

// One line for the log about such names; empty if there are none.
std::string LineOnByteps(const std::vector<std::string>& names);

}  // namespace bs::config
