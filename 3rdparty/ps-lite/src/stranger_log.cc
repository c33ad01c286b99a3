// Names strange hosts, not too often.
#include "stranger_log.h"

namespace ps {

void StrangerLog::Tell(const std::string& doing, const std::string& address,
                       const std::string& why) {
  const bs::TimePoint now = executor_->Now();
  const std::string line = doing + " " + address + ": " + why;
  const auto fresh = [&](const Host& host) { return now < host.told + kInterval; };
  const std::string name = address.substr(0, address.rfind(':'));
  auto host = hosts_.find(name);
  if (host == hosts_.end() && hosts_.size() >= kMostHosts) {
    std::erase_if(hosts_, [&](const auto& entry) { return !fresh(entry.second); });
  }
  const bool known = host != hosts_.end();
  if (known ? fresh(host->second) : hosts_.size() >= kMostHosts) {
    if (known) ++host->second.untold;
    return log_.Debug([&] { return std::string(line); });
  }
  if (!known) host = hosts_.emplace(name, Host()).first;
  const uint64_t untold = host->second.untold;
  host->second = {.told = now};
  log_.Warning(untold == 0
                   ? line
                   : line + " (and " + std::to_string(untold) + " times before it for that host)");
}

}  // namespace ps
