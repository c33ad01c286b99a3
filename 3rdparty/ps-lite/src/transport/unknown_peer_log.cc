// Warns of unknown hosts at a bounded rate.
#include "transport/unknown_peer_log.h"

#include "base/count_of.h"

namespace ps {

void UnknownPeerLog::Tell(const std::string& doing, const std::string& address,
                          const std::string& why) {
  const bs::TimePoint now = executor_->Now();
  const std::string line = doing + " " + address + ": " + why;
  const auto fresh = [&](const Host& host) { return now < host.told + kInterval; };
  const std::string name = HostOf(address);
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
                   : line + " (and " + bs::CountOf(untold, "time") + " before it for that host)");
}

void UnknownPeerLog::CameAndWent(const std::string& address) {
  const bs::TimePoint now = executor_->Now();
  const std::string host = HostOf(address);
  const auto old = [now](const auto& entry) { return now >= entry.second.since + kInterval; };
  if (!visits_.contains(host) && visits_.size() >= kMostHosts) std::erase_if(visits_, old);
  if (!visits_.contains(host) && visits_.size() >= kMostHosts) return;
  const auto visits = visits_.try_emplace(host, Visits{.since = now}).first;
  if (old(*visits)) visits->second = {.since = now};
  if (++visits->second.count != kManyVisits) return;
  Tell("closed by", address,
       "connection " + std::to_string(kManyVisits) +
           " of that host within a minute, and it is not in the job");
}

}  // namespace ps
