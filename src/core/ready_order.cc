// Splits the log into steps, takes means, and gives each tensor the caller's number of its place.
#include "core/ready_order.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace bs::core {
namespace {

// The log is long enough at this multiple of the notes until the newest tensor: a step that is not
// recorded, three recorded steps, and the beginning of the next step, which ends them.
constexpr size_t kSpans = 5;
constexpr size_t kLeastSteps = 2;
// With two tensors a change gains nothing, and a job may sum a single tensor before it trains.
constexpr size_t kLeastTensors = 3;
// Inverse of the least share of pairs that became ready against the order of their calls.  Several
// threads copy gradients that are ready at the call, so a few gradients overtake each other.  Where
// names do not follow the order, the share is a half.
constexpr uint64_t kLeastInverted = 3;
// Notes that are closer belong to one moment: MXNet reports gradients that it computes together one
// after another, some microseconds apart.
constexpr Duration kMoment = std::chrono::microseconds(200);

// Returns true if enough pairs of `places`, a permutation of 0 to size - 1, stand in descending
// order even without any single place: it may belong to a large tensor that is copied slowly.
bool AreInverted(const std::vector<uint32_t>& places) {
  std::vector<uint32_t> smaller(places.size() + 1, 0);  // a Fenwick tree
  uint64_t inversions = 0;
  uint64_t most = 0;  // inversions of a single place
  for (size_t i = 0; i < places.size(); ++i) {
    uint64_t before = 0;
    for (size_t at = places[i]; at > 0; at &= at - 1) before += smaller[at];
    inversions += i - before;
    most = std::max(most, i - before + (places[i] - before));
    for (size_t at = places[i] + 1; at < smaller.size(); at += at & (~at + 1)) ++smaller[at];
  }
  const uint64_t others = places.size() - 1;
  return (inversions - most) * kLeastInverted >= others * (others - 1) / 2;
}

// The caller's numbers, the largest first; distinct numbers if all are equal.
std::vector<Priority> Available(std::vector<Priority> numbers) {
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  if (numbers.front() != numbers.back()) return numbers;
  const auto size = static_cast<int64_t>(numbers.size());
  constexpr int64_t kLowest = std::numeric_limits<Priority>::min();
  const int64_t lowest = std::clamp<int64_t>(numbers.front() - size / 2, kLowest, 1 - size);
  for (int64_t i = 0; i < size; ++i) {
    numbers[static_cast<size_t>(size - 1 - i)] = static_cast<Priority>(lowest + i);
  }
  return numbers;
}

}  // namespace

void ReadyOrder::Note(const Call& call, TimePoint now) {
  const auto [it, fresh] = indices_.try_emplace(call.key, static_cast<uint32_t>(tensors_.size()));
  if (fresh) tensors_.push_back({.key = call.key, .priority = call.priority});
  log_.push_back(
      {.tensor = it->second, .called = call.called, .at_once = call.at_once, .ready = now});
  if (fresh) newest_ = log_.size();
  Tensor& tensor = tensors_[it->second];
  tensor.steady = tensor.steady && tensor.priority == call.priority;
}

bool ReadyOrder::complete() const {
  if (log_.size() >= kMostNotes) return true;
  return tensors_.size() >= kLeastTensors && log_.size() >= kSpans * newest_;
}

std::vector<uint64_t> ReadyOrder::TimesInAStep() const {
  std::vector<uint64_t> counts(tensors_.size(), 0);
  for (size_t i = newest_; i < log_.size(); ++i) ++counts[log_[i].tensor];
  std::vector<uint64_t> sorted = counts;
  std::erase(sorted, 0U);
  if (sorted.empty()) return counts;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (uint64_t& count : counts) {
    // Rounds to the nearest number, and halves down: the first and the last step may have been cut
    // off.
    const uint64_t times = (2 * count + *middle - 1) / (2 * *middle);
    count = 4 * count >= 3 * *middle ? std::max<uint64_t>(1, times) : 0;
  }
  return counts;
}

ReadyOrder::Split ReadyOrder::SplitIntoSteps() const {
  Split split{.notes = std::vector<size_t>(log_.size()), .steps = {}};
  std::iota(split.notes.begin(), split.notes.end(), size_t{0});
  std::sort(split.notes.begin(), split.notes.end(), [this](size_t a, size_t b) {
    return std::tuple(log_[a].called, a) < std::tuple(log_[b].called, b);
  });
  const std::vector<uint64_t> times = TimesInAStep();
  const auto all = tensors_.size() - static_cast<size_t>(std::count(times.begin(), times.end(), 0));
  std::vector<Step>& steps = split.steps;
  std::vector<uint64_t> came(tensors_.size(), 0);
  std::vector<size_t> came_in(tensors_.size(), 0);  // the number of a step, from 1
  size_t begin = 0;
  size_t whole = 0;  // regular tensors that came as often as they do in a step
  for (size_t i = 0; i < log_.size(); ++i) {
    const uint32_t tensor = log_[split.notes[i]].tensor;
    const bool again =
        came_in[tensor] == steps.size() + 1 && came[tensor] >= std::max<uint64_t>(1, times[tensor]);
    if (again && whole == all) {
      steps.push_back({.begin = begin, .end = i});
      begin = i;
      whole = 0;
    }
    if (std::exchange(came_in[tensor], steps.size() + 1) != steps.size() + 1) came[tensor] = 0;
    if (++came[tensor] == times[tensor]) ++whole;
  }
  for (const Step& step : steps) {
    const auto notes = split.notes.begin();
    std::sort(notes + static_cast<std::ptrdiff_t>(step.begin),
              notes + static_cast<std::ptrdiff_t>(step.end));
  }
  return split;
}

void ReadyOrder::FindMoments(const Split& split, const Step& step,
                             std::vector<size_t>* moments) const {
  const auto event = [&](size_t i) -> const Event& { return log_[split.notes[i]]; };
  size_t latest = step.begin;  // of the tensors that were waited for
  size_t at_once = step.end;   // the first of the tensors that were ready at the call, if any
  for (size_t i = step.begin; i < step.end; ++i) {
    if (event(i).at_once) {
      if (at_once == step.end) at_once = i;
      (*moments)[i] = at_once;
      continue;
    }
    if (event(i).ready - event(latest).ready >= kMoment || event(latest).at_once) latest = i;
    (*moments)[i] = latest;
  }
}

std::vector<ReadyOrder::Places> ReadyOrder::Measure() const {
  const Split split = SplitIntoSteps();
  const std::vector<Step>& steps = split.steps;
  if (steps.size() < kLeastSteps + 1) return {};
  std::vector<Places> sums(tensors_.size());
  for (uint32_t tensor = 0; tensor < sums.size(); ++tensor) sums[tensor].tensor = tensor;
  std::vector<size_t> counted_in(tensors_.size(), 0);  // the number of a step, from 1
  std::vector<size_t> moments(log_.size());            // where each note's moment began
  for (size_t s = 1; s < steps.size(); ++s) {
    FindMoments(split, steps[s], &moments);
    for (size_t i = steps[s].end; i-- > steps[s].begin;) {
      const Event& event = log_[split.notes[i]];
      if (counted_in[event.tensor] == s) continue;  // not its last time in this step
      counted_in[event.tensor] = s;
      Places& places = sums[event.tensor];
      ++places.steps;
      places.position += moments[i] - steps[s].begin;
      places.called += event.called;
    }
  }
  std::erase_if(sums, [&](const Places& places) {
    const Tensor& tensor = tensors_[places.tensor];
    return places.steps + 1 < steps.size() || !tensor.steady || tensor.priority > 0;
  });
  const auto before = [this](const Places& a, const Places& b) {
    const Tensor& first = tensors_[a.tensor];
    const Tensor& second = tensors_[b.tensor];
    return std::tuple(a.position, first.priority, first.key) <
           std::tuple(b.position, second.priority, second.key);
  };
  std::sort(sums.begin(), sums.end(), before);
  return sums;
}

ReadyOrder::Lesson ReadyOrder::Learn() const {
  const std::vector<Places> ready = Measure();
  const uint64_t size = ready.size();
  if (size < kLeastTensors) return {.verdict = Verdict::kUnsteady, .num_learned = size};
  std::vector<Places> told = ready;  // tensors of one moment in the order of their calls
  std::sort(told.begin(), told.end(), [](const Places& a, const Places& b) {
    return std::tuple(a.position, a.called) < std::tuple(b.position, b.called);
  });
  std::vector<uint32_t> called(
      size);  // the place at which each became ready, in the order of the calls
  std::iota(called.begin(), called.end(), 0U);
  std::sort(called.begin(), called.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(told[a].called, a) < std::tuple(told[b].called, b);
  });
  return AreInverted(called) ? Renumber(ready)
                             : Lesson{.verdict = Verdict::kAsCalled, .num_learned = size};
}

ReadyOrder::Lesson ReadyOrder::Renumber(const std::vector<Places>& ready) const {
  const auto priority = [&](size_t place) { return tensors_[ready[place].tensor].priority; };
  // The scheduler's order with the caller's numbers: equal numbers as they become ready.
  std::vector<uint32_t> callers(ready.size());
  std::iota(callers.begin(), callers.end(), 0U);
  std::sort(callers.begin(), callers.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(priority(b), a) < std::tuple(priority(a), b);
  });
  Lesson lesson{.verdict = Verdict::kRenumbered, .num_learned = ready.size()};
  std::vector<Priority> available;
  for (size_t i = 0; i < ready.size(); ++i) {
    available.push_back(priority(i));
    const auto by_caller = static_cast<int64_t>(i);
    const auto measured = static_cast<int64_t>(ready.size() - 1 - callers[i]);
    if (std::abs(by_caller - measured) > 1) ++lesson.num_moved;
  }
  if (lesson.num_moved > 0) available = Available(std::move(available));
  for (size_t i = 0; i < ready.size() && lesson.num_moved > 0; ++i) {
    const Tensor& tensor = tensors_[ready[ready.size() - 1 - i].tensor];
    if (tensor.priority == available[i]) continue;
    lesson.numbers.push_back(
        {.key = tensor.key, .callers = tensor.priority, .measured = available[i]});
  }
  if (lesson.numbers.empty()) lesson.verdict = Verdict::kCallersIsRight;
  return lesson;
}

}  // namespace bs::core
