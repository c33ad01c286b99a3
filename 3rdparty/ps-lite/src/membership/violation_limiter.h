// ViolationLimiter: counts the messages of each node of the job that violate the protocol.
//
// A correct node sends none, or a message for each of its keys if its settings differ from other
// nodes' settings.  A node that goes on is broken or hostile.  Without a limit each message would
// cost a response or a line in the log, for ever.
//
// Confined to one executor.  Bounded by the nodes of the job: only they are counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/types.h"

namespace ps {

class ViolationLimiter {
 public:
  static constexpr uint32_t kMost = 4096;
  static constexpr bs::Duration kWindow = std::chrono::seconds(30);

  // Counts a violation by `peer`; true if that makes more than kMost within kWindow.
  bool Add(int32_t peer, bs::TimePoint now) {
    Count& count = counts_[peer];
    if (count.messages == 0 || now >= count.since + kWindow) count = {.since = now};
    if (++count.messages <= kMost) return false;
    counts_.erase(peer);
    return true;
  }
  static std::string Why(const std::string& what) {
    return "it sends what makes no sense: " + what;
  }

 private:
  struct Count {
    bs::TimePoint since{};  // begin of the window
    uint32_t messages = 0;
  };
  std::map<int32_t, Count> counts_;
};

}  // namespace ps
