// How much memory this process can still have.
#pragma once

#include <cstdint>
#include <string>

namespace bs {

// Returns the bytes of memory that the host has left, with swap, by the kernel's estimate; less if
// a control group (version 2) of this process bounds it.  The largest number if the kernel gives
// none.  Other processes may take the memory at any time.  Reads files of the kernel's; `root` is
// where they are.  Thread-safe.
uint64_t AvailableBytes(const std::string& root = "");

}  // namespace bs
