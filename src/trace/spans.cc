// Spans: fills in trace events.
#include "trace/spans.h"

namespace bs::trace {

void Spans::Partition(TraceEvent::Kind kind, const CommTask& task, const bs::Partition& partition,
                      Times times, const Way& way) const {
  if (trace_ == nullptr) return;
  trace_->Record({.kind = kind,
                  .carrier = way.carrier,
                  .partition = partition.index,
                  .server = partition.server,
                  .priority = task.priority(),
                  .key = task.key(),
                  .round = task.round(),
                  .bytes = partition.size_bytes,
                  .coding = way.coding,
                  .begin = times.begin,
                  .end = times.end});
}

void Spans::Ready(const CommTask& task, Duration waited) const {
  if (trace_ == nullptr || task.round() == 0) return;
  const TimePoint now = executor_->Now();
  critical_->Ready(task.key(), task.priority(), now);
  if (waited > Duration()) Whole(TraceEvent::Kind::kProxy, task, {now - waited, now});
}

void Spans::Tensor(const CommTask& task, Times times, std::string_view coding) const {
  if (steps_ != nullptr && task.round() > 0) {
    steps_->Summed(task.key(), task.size_bytes(), executor_->Now());
  }
  if (trace_ == nullptr) return;
  Whole(TraceEvent::Kind::kTensor, task, times, coding);
  if (const auto since = critical_->Summed(task.key(), times.end)) {
    Whole(TraceEvent::Kind::kCritical, task, {*since, times.end});
  }
}

void Spans::Whole(TraceEvent::Kind kind, const CommTask& task, Times times,
                  std::string_view coding) const {
  trace_->Record({.kind = kind,
                  .priority = task.priority(),
                  .key = task.key(),
                  .round = task.round(),
                  .bytes = task.size_bytes(),
                  .coding = coding,
                  .begin = times.begin,
                  .end = times.end});
}

void Spans::Decision(uint64_t number, uint64_t partition_bytes, uint64_t credit_bytes) const {
  if (trace_ == nullptr) return;
  trace_->Record({.kind = TraceEvent::Kind::kDecision,
                  .round = number,
                  .bytes = credit_bytes,
                  .partition_bytes = partition_bytes,
                  .end = executor_->Now()});
}

void Spans::Credit(const Core& core, uint32_t server) const {
  if (trace_ == nullptr) return;
  trace_->Record({.kind = TraceEvent::Kind::kCredit,
                  .server = server,
                  .queued = static_cast<uint32_t>(core.queued(server)),
                  .bytes = core.in_flight_bytes(server),
                  .end = executor_->Now()});
}

}  // namespace bs::trace
