// LimitedLog: warnings about acts of peers that may repeat without end, at most one in an interval.
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
  // `executor` gives the time and must outlive the log.  Lines that come within `interval` of a
  // written line are only counted; the next written line gives their number.
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
