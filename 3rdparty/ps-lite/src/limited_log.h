// LimitedLog: warnings about what strangers send, at most one line a second.
//
// Confined to one executor.
#pragma once

#include <cstdint>
#include <string>

#include "base/executor.h"
#include "base/log.h"

namespace ps {

class LimitedLog {
 public:
  // `executor` gives the time and must outlive the log.
  LimitedLog(bs::Executor* executor, const bs::Logger& log) : executor_(executor), log_(log) {}

  void Warning(const std::string& line) {
    const bs::TimePoint now = executor_->Now();
    if (wrote_ && now < last_ + std::chrono::seconds(1)) {
      ++dropped_;
      return;
    }
    log_.Warning(dropped_ == 0 ? line
                               : line + " (and " + std::to_string(dropped_) + " lines before it)");
    wrote_ = true;
    last_ = now;
    dropped_ = 0;
  }

 private:
  bs::Executor* const executor_;
  const bs::Logger log_;
  bool wrote_ = false;
  bs::TimePoint last_{};
  uint64_t dropped_ = 0;
};

}  // namespace ps
