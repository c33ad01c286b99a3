// The kernel's queue of a TCP connection.
#pragma once

#include <cstdint>

#include "base/executor.h"

namespace ps {

// Returns how many bytes the kernel holds for the connection `fd`, unsent or unacknowledged.
uint64_t HeldBytes(int fd);
// Returns the shortest round trip that the kernel has seen lately; 0 if it has seen none.
bs::Duration LeastRoundTrip(int fd);

}  // namespace ps
