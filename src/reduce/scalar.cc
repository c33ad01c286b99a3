// The specification of every sum: one element at a time, in portable arithmetic.
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <limits>

#include "reduce/halves.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

static_assert(FLT_EVAL_METHOD == 0, "a float sum must be rounded to float");
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

struct Float32 {
  using Stored = float;
  static float Add(float a, float b) { return OneNan(a + b); }
};

struct Float64 {
  using Stored = double;
  static double Add(double a, double b) { return OneNan(a + b); }
};

// float16 and bfloat16: the rounding of a sum in float32.
template <typename Half>
struct Halves {
  using Stored = uint16_t;
  static uint16_t Add(uint16_t a, uint16_t b) {
    return Half::Narrow(OneNan(Half::Widen(a) + Half::Widen(b)));
  }
};

// Unsigned arithmetic wraps, and has the same bits as signed arithmetic that wraps.
template <typename Unsigned>
struct Integer {
  using Stored = Unsigned;
  static Unsigned Add(Unsigned a, Unsigned b) { return static_cast<Unsigned>(a + b); }
};

template <typename Stored>
Stored At(const unsigned char* array, size_t offset_bytes) {
  Stored element;  // copied out, because an array may start at any byte of a message
  std::memcpy(&element, array + offset_bytes, sizeof(element));
  return element;
}

// By recursion, because GCC does not vectorise around a loop over the inputs.
template <typename Element, size_t kInputs>
typename Element::Stored SumAt(const unsigned char* const* from, size_t offset_bytes) {
  using Stored = typename Element::Stored;
  const auto last = At<Stored>(from[kInputs - 1], offset_bytes);
  if constexpr (kInputs == 1) {
    return last;
  } else {
    return Element::Add(SumAt<Element, kInputs - 1>(from, offset_bytes), last);
  }
}

// `first` is inputs[0], or the target: a compiler that is told so need not ask whether they
// overlap.
template <typename Element, size_t kInputs>
void SumOf(unsigned char* target, const unsigned char* first, const void* const* inputs,
           size_t count) {
  using Stored = typename Element::Stored;
  const unsigned char* from[kInputs] = {first};
  for (size_t i = 1; i < kInputs; ++i) from[i] = static_cast<const unsigned char*>(inputs[i]);
  for (size_t offset = 0; offset < count * sizeof(Stored); offset += sizeof(Stored)) {
    const Stored sum = SumAt<Element, kInputs>(from, offset);
    std::memcpy(target + offset, &sum, sizeof(sum));
  }
}

template <typename Element, size_t kInputs>
void SumInPlaceOrNot(void* target, const void* const* inputs, size_t count) {
  auto* to = static_cast<unsigned char*>(target);
  if (inputs[0] == target) return SumOf<Element, kInputs>(to, to, inputs, count);
  SumOf<Element, kInputs>(to, static_cast<const unsigned char*>(inputs[0]), inputs, count);
}

template <typename Element>
void Sum(void* target, const void* const* inputs, size_t num_inputs, size_t count) {
  static_assert(kMaxFusedInputs == 4);
  switch (num_inputs) {
    case 2:
      return SumInPlaceOrNot<Element, 2>(target, inputs, count);
    case 3:
      return SumInPlaceOrNot<Element, 3>(target, inputs, count);
    default:
      return SumInPlaceOrNot<Element, 4>(target, inputs, count);
  }
}

using Int8 = Integer<uint8_t>;
using Int32 = Integer<uint32_t>;
using Int64 = Integer<uint64_t>;

// Position is the DType code; 7 to 11 are no DType that we sum.
constexpr Kernels kKernels = {
    .name = "scalar",
    .sum = {Sum<Float32>, Sum<Float64>, Sum<Halves<Float16>>, Sum<Int8>, Sum<Int32>, Sum<Int8>,
            Sum<Int64>, nullptr, nullptr, nullptr, nullptr, nullptr, Sum<Halves<Bfloat16>>},
};

}  // namespace

const Kernels& ScalarKernels() { return kKernels; }

void Widen(std::span<float> target, std::span<const std::byte> halves) {
  for (size_t i = 0; i < target.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, halves.data() + i * sizeof(half), sizeof(half));
    target[i] = Float16::Widen(half);
  }
}

void Narrow(std::span<std::byte> halves, std::span<const float> source) {
  for (size_t i = 0; i < source.size(); ++i) {
    const uint16_t half = Float16::Narrow(source[i]);
    std::memcpy(halves.data() + i * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace bs::reduce
