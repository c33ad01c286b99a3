// Spans: records the events of a worker's partitions in a trace, if there is one, and counts steps.
//
// Confined to the worker's executor, whose clock it reads.
#pragma once

#include <string_view>

#include "base/executor.h"
#include "base/types.h"
#include "core/comm_task.h"
#include "core/core.h"
#include "trace/critical_tensor.h"
#include "trace/steps.h"
#include "trace/trace.h"

namespace bs::trace {

class Spans {
 public:
  Spans() = default;  // records nothing
  // The arguments are not owned; `trace` may be null.
  Spans(Trace* trace, const Executor* executor, Steps* steps, CriticalTensor* critical)
      : trace_(trace), executor_(executor), steps_(steps), critical_(critical) {}

  // REQUIRES: made with some.
  const Steps& steps() const { return *steps_; }
  bool records() const { return trace_ != nullptr; }
  // For the begin and the end of a span; not the time if there is no trace.
  TimePoint Now() const { return trace_ == nullptr ? TimePoint() : executor_->Now(); }
  struct Times {
    TimePoint begin, end;
  };
  // How the bytes of a span travel.
  struct Way {
    Carrier carrier;
    std::string_view coding;  // as in TraceEvent
  };
  void Partition(TraceEvent::Kind kind, const CommTask& task, const bs::Partition& partition,
                 Times times, const Way& way) const;
  // The task is ready now; `waited` is the time since the user's call.
  void Ready(const CommTask& task, Duration waited) const;
  void Tensor(const CommTask& task, Times times, std::string_view coding) const;
  // Rank 0 has just taken the decision of that number.
  void Decision(uint64_t number, uint64_t partition_bytes, uint64_t credit_bytes) const;
  // Records the credit in use now.
  void Credit(const Core& core, uint32_t server) const;

 private:
  void Whole(TraceEvent::Kind kind, const CommTask& task, Times times,
             std::string_view coding = {}) const;

  Trace* trace_ = nullptr;
  const Executor* executor_ = nullptr;
  Steps* steps_ = nullptr;
  CriticalTensor* critical_ = nullptr;
};

}  // namespace bs::trace
