// Splitmix64: random words that follow from numbers, such as a seed and a place in the job.
#pragma once

#include <cstdint>
#include <span>

namespace bs::codec {

inline constexpr uint64_t kSplitmixStep = 0x9E3779B97F4A7C15;

// A bijection without a pattern.
constexpr uint64_t MixOfSplit(uint64_t word) {
  word = (word ^ word >> 30U) * 0xBF58476D1CE4E5B9;
  word = (word ^ word >> 27U) * 0x94D049BB133111EB;
  return word ^ word >> 31U;
}

// Begins where the numbers lead to.
class Splitmix {
 public:
  explicit constexpr Splitmix(std::span<const uint64_t> numbers) {
    for (const uint64_t number : numbers) state_ = MixOfSplit(state_ + kSplitmixStep + number);
  }
  constexpr uint64_t Next() {
    state_ += kSplitmixStep;
    return MixOfSplit(state_);
  }

 private:
  uint64_t state_ = 0;
};

}  // namespace bs::codec
