// Journal: what happened in a simulated cluster, for people, and which promises were broken.
//
// Everything runs in the simulator's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/sim_executor.h"

namespace bs::sim {

enum class Broken {
  kSum,       // a wrong value arrived
  kCallback,  // not exactly once, on the wrong executor, inside a call
  kCredit,    // too many bytes in flight
  kStatus,    // an operation or a node failed that should not, or with the wrong text
  kStuck,     // something never ended
};

class Journal {
 public:
  using Trace = std::function<void(const std::string& line)>;
  struct Problem {
    Broken kind;
    std::string text;
  };

  // `clock` must outlive the journal.  `trace` may be empty.
  Journal(const SimClock* clock, Trace trace) : clock_(clock), trace_(std::move(trace)) {}

  // An event; `text` is a function that makes the sentence, called only if somebody reads it.
  template <typename Text>
  void Note(const std::string& who, const Text& text) {
    if (trace_) Write(who, text());
  }
  // Counts as life: a cluster without it for long is stuck.
  void Progress() { last_progress_ = clock_->Now(); }
  void Report(Broken kind, const std::string& who, const std::string& text);

  TimePoint last_progress() const { return last_progress_; }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  void Write(const std::string& who, const std::string& text);

  const SimClock* const clock_;
  const Trace trace_;
  TimePoint last_progress_{};
  std::vector<Problem> problems_;  // the first few
};

}  // namespace bs::sim
