// Reads the kernel's files about the host's memory and the bounds of control groups.
#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace bs {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number behind `name` in a file of lines that begin with names.
std::optional<uint64_t> NumberIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(name)) continue;
    const size_t digits = line.find_first_of("0123456789", name.size());
    if (digits != std::string::npos) return std::stoull(line.substr(digits, 18));
  }
  return std::nullopt;
}

uint64_t OfHost(const std::string& root) {
  constexpr uint64_t kUnit = 1024;
  const std::string path = root + "/proc/meminfo";
  const auto available = NumberIn(path, "MemAvailable:");
  if (!available) return kUnknown;
  return (*available + NumberIn(path, "SwapFree:").value_or(0)) * kUnit;
}

// Bytes that a group may still take; the kernel drops cached files before it ends a process.
uint64_t OfGroup(const std::string& folder) {
  const auto most = NumberIn(folder + "/memory.max", "");
  const auto used = NumberIn(folder + "/memory.current", "");
  if (!most || !used) return kUnknown;
  const uint64_t cached = NumberIn(folder + "/memory.stat", "inactive_file ").value_or(0) +
                          NumberIn(folder + "/memory.stat", "active_file ").value_or(0);
  return *most - std::min(*most, *used - std::min(*used, cached));
}

// The process's own, "/a/b"; empty if it is in the first, or there are none.
std::string OwnGroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) return line == "0::/" ? "" : line.substr(3);
  }
  return "";
}

}  // namespace

uint64_t AvailableBytes(const std::string& root) {
  const std::string groups = root + "/sys/fs/cgroup";
  uint64_t least = OfHost(root);
  for (std::string group = OwnGroup(root);; group.erase(group.rfind('/'))) {
    least = std::min(least, OfGroup(groups + group));
    if (group.empty()) return least;
  }
}

}  // namespace bs
