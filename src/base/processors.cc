// Reads the quotas that control groups have for processors.
#include "base/processors.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace bs {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr double kUsualPeriod = 100'000;  // us

// A folder of groups, and the process's own group in it, "" or "/a/b".
using Group = std::pair<std::string, std::string>;

double QuotaOf(int64_t quota_us, double period_us) {
  return quota_us > 0 && period_us > 0 ? static_cast<double>(quota_us) / period_us : kNone;
}

// "50000 100000" or "max 100000".
double QuotaOfVersion2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  int64_t quota_us = 0;
  double period_us = kUsualPeriod;
  if (!(file >> quota_us)) return kNone;
  file >> period_us;
  return QuotaOf(quota_us, period_us);
}

double QuotaOfVersion1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  int64_t quota_us = 0;
  double period_us = kUsualPeriod;
  if (!(quota_file >> quota_us)) return kNone;
  period_file >> period_us;
  return QuotaOf(quota_us, period_us);
}

bool Controls(const std::string& controllers, const std::string& name) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == name) return true;
  }
  return false;
}

// Lines are "number:controllers:path", with no controllers for version 2.
std::vector<Group> OwnGroups(const std::string& root) {
  // Without any line the folders' own files may tell.
  std::vector<Group> groups = {{"", ""}, {"/cpu", ""}};
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      groups.emplace_back("", path);
      groups.emplace_back("/unified", path);  // beside version 1
    } else if (Controls(controllers, "cpu")) {
      groups.emplace_back("/cpu", path);
      groups.emplace_back("/" + controllers, path);
    }
  }
  return groups;
}

}  // namespace

double ProcessorQuota(const std::string& root) {
  double least = kNone;
  // A container may see paths of its host, of which only the root is there: each part is tried.
  for (auto [folder, group] : OwnGroups(root)) {
    for (bool more = true; more;) {
      std::string path = root;
      path.append("/sys/fs/cgroup").append(folder).append(group);
      least = std::min({least, QuotaOfVersion2(path), QuotaOfVersion1(path)});
      more = !group.empty();
      if (more) group.erase(std::min(group.rfind('/'), group.size()));
    }
  }
  return least;
}

}  // namespace bs
