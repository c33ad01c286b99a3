// The limit of locked memory, as the kernel applies it.
#include "transport/rdma/locked_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <charconv>
#include <fstream>

namespace ps {
namespace {

bool MayLockAll(const std::string& status) {
  constexpr std::string_view kName = "CapEff:\t";
  std::ifstream file(status);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(kName)) continue;
    uint64_t capabilities = 0;
    std::from_chars(line.data() + kName.size(), line.data() + line.size(), capabilities, 16);
    return ((capabilities >> CAP_IPC_LOCK) & 1U) != 0;
  }
  return false;
}

}  // namespace

uint64_t LockedMemoryLimit(const std::string& status) {
  rlimit limit{};
  if (MayLockAll(status) || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return kNoLockedMemoryLimit;
  return limit.rlim_cur == RLIM_INFINITY ? kNoLockedMemoryLimit : limit.rlim_cur;
}

std::string TextOfLockedMemory(uint64_t limit_bytes) {
  if (limit_bytes == kNoLockedMemoryLimit) return "";
  return "the limit of locked memory is " + std::to_string(limit_bytes >> 10U) +
         " KiB: ulimit -l unlimited, or --ulimit memlock=-1 for a container";
}

}  // namespace ps
