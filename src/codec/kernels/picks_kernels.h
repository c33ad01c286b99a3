// The loops of topk and randomk over the elements of a unit: a scalar specification, and vector
// kernels that give its bits.
//
// Pure functions on memory the caller owns; any alignment; thread-safe; in the default
// floating-point environment.  A kernel's file is compiled for its CPUs: it shares no inline
// function with other files, which a linker could take from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bs::codec {

// Elements that are coded: in + ratio * residual, with the product rounded, or `in` if `residual`
// is null.
struct PickInput {
  const unsigned char* in;  // float32
  float* residual;
  float ratio;
};

// Some bits of a magnitude, which is an element's bits without the sign: `bits` of them, from bit
// `shift` on.
struct PickDigit {
  unsigned shift;
  unsigned bits;
  uint32_t prefix;  // the bits above the digit
};

// Picks are the elements whose magnitude is above `least`, and the first `ties` that have it.
struct PickCut {
  uint32_t least;
  size_t ties;
};

// Elements of a unit, ascending.  A search may write to `kPickSlack` places behind those it found.
inline constexpr size_t kPickSlack = 16;
struct PickLists {
  uint32_t* indices;
  float* values;
};

// The elements that are searched.
struct PickRange {
  size_t first;
  size_t count;
};

struct PickKernels {
  std::string_view name;  // "scalar", "avx2", "avx512"
  // True if all elements are finite.
  bool (*are_finite)(const PickInput& input, size_t count);
  // ++buckets[digit] for each element with the prefix.
  void (*count_digits)(const PickInput& input, size_t count, const PickDigit& digit,
                       uint32_t* buckets);
  // Writes the indices and values of the elements whose magnitude is at least `least`; returns how
  // many.
  size_t (*find)(const PickInput& input, const PickRange& range, uint32_t least,
                 const PickLists& found);
  // Writes the indices of all picks, ascending, as uint16_t.
  void (*pick)(const PickInput& input, size_t count, const PickCut& cut, unsigned char* indices);
  // The residual becomes what is coded.  REQUIRES: there is one.
  void (*fold)(const PickInput& input, size_t count);
};

// The specification.
const PickKernels& ScalarPicks();
// Vector kernels, where the compiler makes them.
const PickKernels& Avx2Picks();
const PickKernels& Avx512Picks();

// All that this CPU can run, scalar first, fastest last.
std::span<const PickKernels* const> AvailablePicks();

}  // namespace bs::codec
