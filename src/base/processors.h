// How many processors the control groups of this process allow it.
#pragma once

#include <string>

namespace bs {

// Processors' worth of time that the process may use, such as 0.5: the least quota of its control
// groups, of version 1 or 2.  Infinite if no group has a quota.  Reads files of the kernel's;
// `root` is where they are.  Thread-safe.
double ProcessorQuota(const std::string& root = "");

}  // namespace bs
