// UnknownPeerLog: warns of hosts outside the job that connect or send garbage, each once a minute.
//
// Confined to one executor.  Remembers at most kMostHosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/executor.h"
#include "base/log.h"

namespace ps {

class UnknownPeerLog {
 public:
  static constexpr bs::Duration kInterval = std::chrono::minutes(1);
  static constexpr size_t kMostHosts = 256;
  // A monitor that probes whether a port is open connects less often than this within kInterval.
  static constexpr uint64_t kManyVisits = 1000;

  // `executor` gives the time and must outlive the log.
  UnknownPeerLog(bs::Executor* executor, const bs::Logger& log) : executor_(executor), log_(log) {}

  // Warns, "hung up on host:port: why".  Logs at level debug instead if the host, or kMostHosts
  // other hosts, had a line within kInterval.
  void Tell(const std::string& doing, const std::string& address, const std::string& why);
  // An unknown peer has connected and gone, which is harmless once.  Warns if its host has done so
  // kManyVisits times within kInterval.  Counts for kMostHosts hosts at a time.
  void CameAndWent(const std::string& address);

  static std::string HostOf(const std::string& address) {
    return address.substr(0, address.rfind(':'));
  }

 private:
  struct Visits {
    bs::TimePoint since{};
    uint64_t count = 0;
  };
  struct Host {
    bs::TimePoint told{};
    uint64_t untold = 0;  // lines since then that were not warnings
  };

  bs::Executor* const executor_;
  const bs::Logger log_;
  std::map<std::string, Host> hosts_;  // entries older than kInterval go when room is needed
  std::map<std::string, Visits> visits_;
};

}  // namespace ps
