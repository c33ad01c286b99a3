// Journal: lines with the simulated time in front.
#include "sim/journal.h"

#include <array>
#include <cstdio>

namespace bs::sim {
namespace {

constexpr size_t kMaxProblems = 10;  // the first ones tell the most

}  // namespace

void Journal::Report(Broken kind, const std::string& who, const std::string& text) {
  if (trace_) Write(who, "BROKEN: " + text);
  if (problems_.size() < kMaxProblems) problems_.push_back({kind, who + ": " + text});
}

void Journal::Write(const std::string& who, const std::string& text) {
  std::array<char, 32> time{};
  const auto nanoseconds = static_cast<double>(clock_->Now().time_since_epoch().count());
  std::snprintf(time.data(), time.size(), "%12.6f s  ", nanoseconds / 1e9);
  trace_(time.data() + who + ": " + text);
}

}  // namespace bs::sim
