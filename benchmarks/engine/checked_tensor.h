// A tensor whose gradient tells rounds, places, keys and workers apart, and the sum that must come
// back.
//
// Before each round some numbers of the gradient change, at least one in each piece of 64 KiB, and
// are spoilt in the place for the sum: that takes microseconds and no part of a measurement.  All
// are small whole numbers, which float32 adds exactly in any order.  All workers of a job begin
// rounds alike.
//
// Not thread-safe; nobody may change a tensor that the engine reads, or look at one that it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

class CheckedTensor {
 public:
  CheckedTensor(uint64_t key, size_t size_bytes, int rank, int num_workers)
      : key_(key),
        rank_(static_cast<float>(rank)),
        workers_(static_cast<float>(num_workers)),
        in_(size_bytes / sizeof(float)),
        out_(size_bytes / sizeof(float)) {
    ChangeAll();
  }

  uint64_t key() const { return key_; }
  size_t size_bytes() const { return in_.size() * sizeof(float); }
  const float* in() const { return in_.data(); }
  float* out() { return out_.data(); }

  // Begins a round in which some numbers are new.
  void Change() {
    ++round_;
    // The range differs from that in ChangeAll().
    const auto value = static_cast<float>(256 + (257 * round_ + key_) % 16384);
    float place = 0;
    for (size_t i = 0; i < in_.size(); i += kStride) Set(i, value + place++);
    if (!in_.empty()) Set(in_.size() - 1, value + place);
  }

  // Begins a round in which every number is new.
  void ChangeAll() {
    ++round_;
    for (size_t i = 0; i < in_.size(); ++i) {
      Set(i, static_cast<float>((i + 7 * key_ + 31 * round_) % 251));
    }
  }

  // Says which sum of a number that Change() has changed is wrong; empty: all are right.
  std::string Wrong() const {
    for (size_t i = 0; i < in_.size(); i += kStride) {
      if (out_[i] != Want(i)) return Told(i);
    }
    return in_.empty() || out_.back() == Want(in_.size() - 1) ? "" : Told(in_.size() - 1);
  }

  // Says which number that Change() has changed did not come back at all, in place of its sum; for
  // sums that lose something on their way.  Empty: all came.
  std::string Missing() const {
    for (size_t i = 0; i < out_.size(); i += kStride) {
      if (out_[i] == kPoison) return Told(i);
    }
    return "";
  }

  // The same as Wrong() of all numbers.
  std::string WrongAnywhere() const {
    for (size_t i = 0; i < in_.size(); ++i) {
      if (out_[i] != Want(i)) return Told(i);
    }
    return "";
  }

 private:
  static constexpr size_t kStride = 64 * 1024 / sizeof(float);
  static constexpr float kPoison = -1.0F;

  void Set(size_t i, float value) {
    in_[i] = value + rank_;
    out_[i] = kPoison;
  }
  // Each worker has added its rank.
  float Want(size_t i) const { return workers_ * (in_[i] - rank_) + workers_ * (workers_ - 1) / 2; }
  std::string Told(size_t i) const {
    return "the sum of key " + std::to_string(key_) + " is wrong in its round " +
           std::to_string(round_) + ": number " + std::to_string(i) + " is " +
           std::to_string(out_[i]) + ", want " + std::to_string(Want(i));
  }

  const uint64_t key_;
  const float rank_;
  const float workers_;
  uint64_t round_ = 0;
  std::vector<float> in_;
  std::vector<float> out_;
};

}  // namespace bench
