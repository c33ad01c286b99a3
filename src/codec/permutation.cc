// Draws the two numbers of a permutation.
#include "codec/permutation.h"

#include <array>
#include <numeric>

#include "codec/kernels/splitmix.h"

namespace bs::codec {
namespace {

// Xorshift128+.  Its state comes of the next two outputs of splitmix64 behind all that is absorbed:
// both are 0 for no state.
class Generator {
 public:
  explicit Generator(const UnitSeed& seed) {
    Splitmix words(std::array{seed.seed, seed.key, seed.unit, seed.round});
    first_ = words.Next();
    second_ = words.Next();
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
