// Permutation: an order of a unit's elements that all nodes of a job draw alike.
//
// Index j is (a j + b) mod n, where a has no common divisor with n.  The generator (xorshift128+
// with the shifts 23, 17 and 26) begins anew for each unit and round, so repeats, losses and new
// workers cannot get out of step.  A value; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bs::codec {

// The origin of a unit's random numbers.
struct UnitSeed {
  uint64_t seed;
  uint64_t key;
  uint64_t unit;  // its number in the tensor
  uint64_t round;
};

class Permutation {
 public:
  // REQUIRES: `count` is 1 to 2^32.
  Permutation(const UnitSeed& seed, uint64_t count);
  // Each of the first `count` calls returns another index.
  size_t Next() {
    const uint64_t index = next_;
    next_ += step_;
    if (next_ >= count_) next_ -= count_;
    return static_cast<size_t>(index);
  }

 private:
  uint64_t count_;
  uint64_t step_ = 0;
  uint64_t next_ = 0;
};

}  // namespace bs::codec
