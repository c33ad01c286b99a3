// Metrics: numbers that a node reports of itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace bs {

// Each number has a name and, where several share the name, the rank that it is about.  Not
// thread-safe.
class Metrics {
 public:
  static constexpr int32_t kWhole = -1;
  using Id = std::pair<std::string, int32_t>;

  // Adds `value` to the number of that name.
  void Add(const std::string& name, int32_t of, double value) { numbers_[{name, of}] += value; }
  void Add(const std::string& name, double value) { Add(name, kWhole, value); }
  void Add(const Metrics& others) {
    for (const auto& [id, value] : others.numbers_) numbers_[id] += value;
  }

  const std::map<Id, double>& numbers() const { return numbers_; }

 private:
  std::map<Id, double> numbers_;
};

}  // namespace bs
