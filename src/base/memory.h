// How much memory this process can still have.
#pragma once

#include <cstdint>
#include <string>

namespace bs {

// By the kernel's estimate: what the host has left, with swap, or less if a control group
// (version 2) of this process bounds it; the largest number where nothing tells.  Others may take
// it at any time.  Reads files of the kernel's; `root` is where they are.  Thread-safe.
uint64_t AvailableBytes(const std::string& root = "");

}  // namespace bs
