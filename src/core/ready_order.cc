// Cuts the log into steps, takes means, and gives the caller's numbers to those they should have.
#include "core/ready_order.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace bs::core {
namespace {

// How many times the notes until the newest tensor are enough: a step that is not recorded, three
// that are, and the beginning of the next one, which ends them.
constexpr size_t kSpans = 5;
constexpr size_t kLeastSteps = 2;
// With two tensors nothing is worth a change; and a job may sum a single one before it trains.
constexpr size_t kLeastTensors = 3;
// The least share of pairs, one in so many, that became ready in the other order than they were
// called.  Gradients that had been there all along are copied by several threads, and overtake each
// other a little.
constexpr uint64_t kLeastInverted = 8;

// How many pairs of `places`, which are 0 to size - 1 in some order, stand in descending order.
uint64_t CountInversions(const std::vector<uint32_t>& places) {
  std::vector<uint32_t> smaller(places.size() + 1, 0);  // a Fenwick tree
  uint64_t inversions = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    uint64_t before = 0;
    for (size_t at = places[i]; at > 0; at &= at - 1) before += smaller[at];
    inversions += i - before;
    for (size_t at = places[i] + 1; at < smaller.size(); at += at & (~at + 1)) ++smaller[at];
  }
  return inversions;
}

// The caller's numbers, the largest first; distinct ones if all are equal.
std::vector<Priority> Available(std::vector<Priority> numbers) {
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  if (numbers.front() != numbers.back()) return numbers;
  const auto size = static_cast<int64_t>(numbers.size());
  constexpr int64_t kLowest = std::numeric_limits<Priority>::min();
  constexpr int64_t kHighest = std::numeric_limits<Priority>::max();
  const int64_t lowest =
      std::clamp<int64_t>(numbers.front() - size / 2, kLowest, kHighest - (size - 1));
  for (int64_t i = 0; i < size; ++i) {
    numbers[static_cast<size_t>(size - 1 - i)] = static_cast<Priority>(lowest + i);
  }
  return numbers;
}

}  // namespace

void ReadyOrder::Note(Key key, Priority priority, uint64_t called) {
  const auto [it, fresh] = indices_.try_emplace(key, static_cast<uint32_t>(tensors_.size()));
  if (fresh) tensors_.push_back({.key = key, .priority = priority});
  log_.push_back({.tensor = it->second, .called = called});
  if (fresh) newest_ = log_.size();
  Tensor& tensor = tensors_[it->second];
  tensor.steady = tensor.steady && tensor.priority == priority;
}

bool ReadyOrder::complete() const {
  if (log_.size() >= kMostNotes) return true;
  return tensors_.size() >= kLeastTensors && log_.size() >= kSpans * newest_;
}

std::vector<bool> ReadyOrder::Regular() const {
  std::vector<uint64_t> counts(tensors_.size(), 0);
  for (size_t i = newest_; i < log_.size(); ++i) ++counts[log_[i].tensor];
  std::vector<uint64_t> sorted = counts;
  std::erase(sorted, 0U);
  if (sorted.empty()) return std::vector<bool>(tensors_.size(), false);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::vector<bool> regular;
  regular.reserve(counts.size());
  for (const uint64_t count : counts) regular.push_back(4 * count >= 3 * *middle);
  return regular;
}

std::vector<ReadyOrder::Step> ReadyOrder::Cut() const {
  const std::vector<bool> regular = Regular();
  const auto all = static_cast<size_t>(std::count(regular.begin(), regular.end(), true));
  std::vector<Step> steps;
  std::vector<size_t> seen_in(tensors_.size(), 0);  // the number of a step, from 1
  size_t begin = 0;
  size_t num_regular = 0;  // seen in this step
  for (size_t i = 0; i < log_.size(); ++i) {
    const uint32_t tensor = log_[i].tensor;
    if (seen_in[tensor] == steps.size() + 1) {
      if (num_regular < all) continue;
      steps.push_back({.begin = begin, .end = i});
      begin = i;
      num_regular = 0;
    }
    seen_in[tensor] = steps.size() + 1;
    if (regular[tensor]) ++num_regular;
  }
  return steps;
}

std::vector<ReadyOrder::Places> ReadyOrder::Measure() const {
  const std::vector<Step> steps = Cut();
  if (steps.size() < kLeastSteps + 1) return {};
  std::vector<Places> sums(tensors_.size());
  for (uint32_t tensor = 0; tensor < sums.size(); ++tensor) sums[tensor].tensor = tensor;
  std::vector<size_t> counted_in(tensors_.size(), 0);  // the number of a step, from 1
  for (size_t s = 1; s < steps.size(); ++s) {
    for (size_t i = steps[s].end; i-- > steps[s].begin;) {
      const Event& event = log_[i];
      if (counted_in[event.tensor] == s) continue;  // not its last time in this step
      counted_in[event.tensor] = s;
      Places& places = sums[event.tensor];
      ++places.steps;
      places.position += i - steps[s].begin;
      places.called += event.called;
    }
  }
  std::erase_if(sums, [&](const Places& places) {
    return places.steps + 1 < steps.size() || !tensors_[places.tensor].steady;
  });
  const auto before = [this](const Places& a, const Places& b) {
    return std::tuple(a.position, tensors_[a.tensor].key) <
           std::tuple(b.position, tensors_[b.tensor].key);
  };
  std::sort(sums.begin(), sums.end(), before);
  return sums;
}

ReadyOrder::Lesson ReadyOrder::Learn() const {
  const std::vector<Places> ready = Measure();
  const uint64_t size = ready.size();
  if (size < kLeastTensors) return {.verdict = Verdict::kUnsteady, .num_learned = size};
  std::vector<uint32_t> called(size);  // in the order of the calls: who became ready at which place
  std::iota(called.begin(), called.end(), 0U);
  std::sort(called.begin(), called.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(ready[a].called, a) < std::tuple(ready[b].called, b);
  });
  if (CountInversions(called) * kLeastInverted < size * (size - 1) / 2) {
    return {.verdict = Verdict::kAsCalled, .num_learned = size};
  }
  return Renumber(ready);
}

ReadyOrder::Lesson ReadyOrder::Renumber(const std::vector<Places>& ready) const {
  const auto priority = [&](size_t place) { return tensors_[ready[place].tensor].priority; };
  // As the scheduler takes them with the caller's numbers: equal ones as they become ready.
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
