// ViolationLimiter: how much of what a node of the job sends lately makes no sense.
//
// A correct node sends nothing of that kind, or a message for each of its keys when it has other
// settings than the rest.  One that goes on is broken or hostile, and would be answered, or dropped
// with a line, for ever.
//
// Confined to one executor.  Bounded by the nodes of the job, which alone are counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "bytescheduler/types.h"

namespace ps {

class ViolationLimiter {
 public:
  static constexpr uint32_t kMost = 4096;
  static constexpr bs::Duration kWindow = std::chrono::seconds(30);

  // Counts a message of `peer`; true if it is one more than kMost since kWindow began.
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
    bs::TimePoint since{};  // of the window
    uint32_t messages = 0;
  };
  std::map<int32_t, Count> counts_;
};

}  // namespace ps
