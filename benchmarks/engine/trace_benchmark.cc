// The cost of the timeline: an event recorded, on the engine's thread; and written as text, on its
// own.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "trace/trace.h"
#include "trace/trace_text.h"

namespace {

using bs::trace::Trace;
using bs::trace::TraceEvent;

constexpr size_t kRoom = 1 << 16;

TraceEvent SomePush(int64_t number) {
  const bs::TimePoint begin{std::chrono::microseconds(100 * number)};
  return {.kind = TraceEvent::Kind::kPush,
          .partition = static_cast<uint32_t>(number % 16),
          .server = static_cast<uint32_t>(number % 4),
          .priority = -7,
          .key = static_cast<bs::Key>(number % 500),
          .round = static_cast<bs::Round>(number / 500),
          .bytes = 131072,
          .begin = begin,
          .end = begin + std::chrono::microseconds(1250)};
}

// With the reading of the clock that ends a span.
void Record(benchmark::State& state) {
  Trace trace(kRoom);
  TraceEvent event = SomePush(1);
  size_t recorded = 0;
  for (auto step : state) {
    static_cast<void>(step);
    event.end = std::chrono::steady_clock::now();
    trace.Record(event);
    if (++recorded % kRoom != 0) continue;
    state.PauseTiming();
    while (trace.Take(&event)) {
    }
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}

// When the file does not keep up.
void RecordWhenFull(benchmark::State& state) {
  Trace trace(4);
  const TraceEvent event = SomePush(1);
  for (auto step : state) {
    static_cast<void>(step);
    trace.Record(event);
  }
  state.SetItemsProcessed(state.iterations());
}

void Write(benchmark::State& state) {
  bs::trace::TraceText writer({});
  std::string text;
  int64_t number = 0;
  for (auto step : state) {
    static_cast<void>(step);
    text.clear();
    writer.Event(SomePush(++number), &text);
    benchmark::DoNotOptimize(text.data());
  }
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(Record);
BENCHMARK(RecordWhenFull);
BENCHMARK(Write);

}  // namespace
