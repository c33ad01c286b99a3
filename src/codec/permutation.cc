// Draws the two numbers of a permutation.
#include "codec/permutation.h"

#include <initializer_list>
#include <numeric>

namespace bs::codec {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// The output function of splitmix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27U) * 0x94d049bb133111eb;
  return x ^ x >> 31U;
}

// Xorshift128+.  Its state comes of the next two outputs of splitmix64 behind all that is absorbed:
// both are 0 for no state.
class Generator {
 public:
  explicit Generator(const UnitSeed& seed) {
    uint64_t state = 0;
    for (const uint64_t value : {seed.seed, seed.key, seed.unit, seed.round}) {
      state = Mix(state + kGolden + value);
    }
    first_ = Mix(state + kGolden);
    second_ = Mix(state + 2 * kGolden);
  }
  uint64_t Next() {
    uint64_t old = first_;
    const uint64_t kept = second_;
    first_ = kept;
    old ^= old << 23U;
    old ^= old >> 17U;
    old ^= kept ^ kept >> 26U;
    second_ = old;
    return old + kept;
  }

 private:
  uint64_t first_ = 0;
  uint64_t second_ = 0;
};

}  // namespace

Permutation::Permutation(const UnitSeed& seed, uint64_t count) : count_(count) {
  Generator generator(seed);
  do {
    step_ = generator.Next() % count;
  } while (std::gcd(step_, count) != 1);
  next_ = generator.Next() % count;
}

}  // namespace bs::codec
