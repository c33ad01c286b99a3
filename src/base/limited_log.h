// LimitedLog: warnings about what others do as often as they like, at most one line in a while.
//
// Confined to one executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "base/executor.h"
#include "base/log.h"

namespace bs {

class LimitedLog {
 public:
  // `executor` gives the time and must outlive the log.  Of the lines that come within `interval`
  // of one that was written only the number is kept, for the next.
  LimitedLog(Executor* executor, Logger log, Duration interval = std::chrono::seconds(1))
      : executor_(executor), log_(std::move(log)), interval_(interval) {}

  void Warning(const std::string& line) {
    const TimePoint now = executor_->Now();
    if (wrote_ && now < last_ + interval_) {
      ++dropped_;
      return;
    }
    log_.Warning(dropped_ == 0 ? line
                               : line + " (and " + CountOf(dropped_, "line") + " before it)");
    wrote_ = true;
    last_ = now;
    dropped_ = 0;
  }

 private:
  Executor* const executor_;
  const Logger log_;
  const Duration interval_;
  bool wrote_ = false;
  TimePoint last_{};
  uint64_t dropped_ = 0;
};

}  // namespace bs
