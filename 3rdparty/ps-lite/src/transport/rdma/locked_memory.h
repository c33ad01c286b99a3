// How much memory this process may lock, and so lend to a network card.
#pragma once

#include <cstdint>
#include <string>

namespace ps {

constexpr uint64_t kNoLockedMemoryLimit = ~uint64_t{0};

// By RLIMIT_MEMLOCK, unless the process has CAP_IPC_LOCK.  `status` is the kernel's file about the
// process.  Thread-safe.
uint64_t LockedMemoryLimit(const std::string& status = "/proc/self/status");

// "the limit of locked memory is 64 KiB: ulimit -l unlimited, or --ulimit memlock=-1 for a
// container"; empty without a limit.
std::string TextOfLockedMemory(uint64_t limit_bytes);

}  // namespace ps
