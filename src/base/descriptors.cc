// Counts descriptors by asking the kernel about each number below the limit.
#include "base/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <system_error>

namespace bs {
namespace {

constexpr uint64_t kUsualLimit = 4096;  // enough for hundreds of peers
constexpr auto kMostDescriptors = static_cast<uint64_t>(std::numeric_limits<int>::max());

struct Limit {
  uint64_t soft = kMostDescriptors;  // in force
  uint64_t hard = kMostDescriptors;  // the user may raise `soft` up to it
};

Limit LimitOfFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return {std::min<uint64_t>(limit.rlim_cur, kMostDescriptors),
          std::min<uint64_t>(limit.rlim_max, kMostDescriptors)};
}

// Stops at `wanted`: a limit may be a billion.
uint64_t CountFree(uint64_t limit, uint64_t wanted) {
  uint64_t free = 0;
  for (uint64_t fd = 0; fd < limit && free < wanted; ++fd) {
    if (fcntl(static_cast<int>(fd), F_GETFD) < 0 && errno == EBADF) ++free;
  }
  return free;
}

// "raise it with ulimit -n 4096", enough for `least`.
std::string Remedy(const Limit& limit, uint64_t least) {
  const uint64_t enough = std::max(kUsualLimit, std::bit_ceil(least));
  std::string text = "raise it with ulimit -n " + std::to_string(enough);
  if (limit.hard < enough) {
    text += ", which the hard limit of " + std::to_string(limit.hard) +
            " forbids: raise that first (limits.conf, LimitNOFILE= of systemd, --ulimit of docker)";
  }
  return text;
}

}  // namespace

std::string SystemError(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EMFILE) {
    const Limit limit = LimitOfFiles();
    text += ": this process may have " + std::to_string(limit.soft) + " (ulimit -n); " +
            Remedy(limit, 2 * limit.soft);
  }
  if (error == ENFILE) text += ": the limit of this host, the sysctl fs.file-max";
  return text;
}

Status CheckDescriptors(uint64_t wanted, std::string_view what) {
  const Limit limit = LimitOfFiles();
  const uint64_t free = CountFree(limit.soft, wanted);
  if (free >= wanted) return Status::Ok();
  return Status::ResourceExhausted(
      "too many open files: " + std::string(what) + " needs " + std::to_string(wanted) +
      " more, and of the " + std::to_string(limit.soft) +
      " that a process may have (ulimit -n) only " + std::to_string(free) +
      (free == 1 ? " is" : " are") + " free; " + Remedy(limit, limit.soft - free + wanted));
}

}  // namespace bs
