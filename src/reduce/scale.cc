// Scale and Combine: one element at a time, in portable arithmetic that compilers vectorise.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "reduce/float_environment.h"
#include "reduce/halves.h"
#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

// float16 is widened into this many floats at a time, which stay in the nearest cache.
constexpr size_t kBlock = 1024;

template <typename T>
T Multiply(T value, T factor) {
  const T product = value * factor;
  return product == product ? product : std::numeric_limits<T>::quiet_NaN();
}

template <typename T>
void ScaleOf(std::byte* array, size_t count, T factor) {
  for (size_t i = 0; i < count; ++i) {
    T value;  // copied out, because a partition may start at any byte
    std::memcpy(&value, array + i * sizeof(T), sizeof(T));
    value = Multiply(value, factor);
    std::memcpy(array + i * sizeof(T), &value, sizeof(T));
  }
}

void ScaleBfloat16(std::byte* array, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, array + i * sizeof(half), sizeof(half));
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(half) << 16U);
    const auto bits = std::bit_cast<uint32_t>(Multiply(value, factor));
    // To nearest even, as in scalar.cc.
    half = static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
    std::memcpy(array + i * sizeof(half), &half, sizeof(half));
  }
}

void ScaleFloat16(std::byte* array, size_t count, float factor) {
  float values[kBlock];
  for (size_t done = 0; done < count; done += kBlock) {
    const std::span block(values, std::min(kBlock, count - done));
    const std::span halves(array + done * sizeof(uint16_t), block.size() * sizeof(uint16_t));
    Widen(block, halves);
    for (float& value : block) value = Multiply(value, factor);
    Narrow(halves, block);
  }
}

template <typename T>
using BitsOfFloat = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

struct Min {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (!std::is_floating_point_v<T>) {
      return b < a ? b : a;
    } else {
      using Bits = BitsOfFloat<T>;
      // Equal numbers have the same bits, but for zeros: one with a sign is the lesser.
      const T both = std::bit_cast<T>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
      const T least = a < b ? a : (b < a ? b : both);
      return a == a && b == b ? least : std::numeric_limits<T>::quiet_NaN();
    }
  }
};

struct Max {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (!std::is_floating_point_v<T>) {
      return a < b ? b : a;
    } else {
      using Bits = BitsOfFloat<T>;
      const T both = std::bit_cast<T>(std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b));
      const T greatest = a < b ? b : (b < a ? a : both);
      return a == a && b == b ? greatest : std::numeric_limits<T>::quiet_NaN();
    }
  }
};

struct Product {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return OneNan(a * b);
    } else {
      // Unsigned and at least as wide as an int, where a product wraps.
      using Wide = std::common_type_t<std::make_unsigned_t<T>, uint32_t>;
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    }
  }
};

// Elements that are stored as they are.
template <typename T>
struct Plain {
  using Stored = T;
  template <typename Rule>
  static T Of(T a, T b) {
    return Rule::Of(a, b);
  }
};

// float16 and bfloat16: the rounding of a result in float32.
template <typename Half>
struct Halved {
  using Stored = uint16_t;
  template <typename Rule>
  static uint16_t Of(uint16_t a, uint16_t b) {
    return Half::Narrow(Rule::Of(Half::Widen(a), Half::Widen(b)));
  }
};

template <typename Element, typename Rule>
void CombineOf(void* accumulator, const void* addend, size_t count) {
  using Stored = typename Element::Stored;
  auto* const to = static_cast<unsigned char*>(accumulator);
  const auto* const from = static_cast<const unsigned char*>(addend);
  for (size_t offset = 0; offset < count * sizeof(Stored); offset += sizeof(Stored)) {
    Stored a;  // copied out, because an array may start at any byte of a message
    Stored b;
    std::memcpy(&a, to + offset, sizeof(a));
    std::memcpy(&b, from + offset, sizeof(b));
    a = Element::template Of<Rule>(a, b);
    std::memcpy(to + offset, &a, sizeof(a));
  }
}

using CombineFn = void (*)(void* accumulator, const void* addend, size_t count);
// By DType code; 7 to 11 are no DType.
using CombineRow = std::array<CombineFn, 13>;

template <typename Rule>
constexpr CombineRow RowOfRule() {
  return {CombineOf<Plain<float>, Rule>,
          CombineOf<Plain<double>, Rule>,
          CombineOf<Halved<Float16>, Rule>,
          CombineOf<Plain<uint8_t>, Rule>,
          CombineOf<Plain<int32_t>, Rule>,
          CombineOf<Plain<int8_t>, Rule>,
          CombineOf<Plain<int64_t>, Rule>,
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          CombineOf<Halved<Bfloat16>, Rule>};
}

constexpr CombineRow kMinRow = RowOfRule<Min>();
constexpr CombineRow kMaxRow = RowOfRule<Max>();
constexpr CombineRow kProductRow = RowOfRule<Product>();

const CombineRow& RowOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return kMinRow;
    case Reduction::kMax:
      return kMaxRow;
    default:
      return kProductRow;
  }
}

}  // namespace

void Scale(DType dtype, void* array, size_t count, double factor) {
  BS_CHECK(CanScale(dtype));
  const DefaultFloatEnvironment environment;
  auto* const bytes = static_cast<std::byte*>(array);
  const auto narrow = static_cast<float>(factor);
  switch (dtype) {
    case DType::kFloat64:
      return ScaleOf<double>(bytes, count, factor);
    case DType::kFloat16:
      return ScaleFloat16(bytes, count, narrow);
    case DType::kBfloat16:
      return ScaleBfloat16(bytes, count, narrow);
    default:
      return ScaleOf<float>(bytes, count, narrow);
  }
}

void Combine(Reduction reduction, DType dtype, void* accumulator, const void* addend,
             size_t count) {
  if (reduction == Reduction::kSum) {
    return Sum(BestKernels(), dtype, accumulator, addend, count);
  }
  const auto code = static_cast<size_t>(dtype);
  const CombineRow& row = RowOf(reduction);
  BS_CHECK(code < row.size() && row[code] != nullptr);
  const DefaultFloatEnvironment environment;
  row[code](accumulator, addend, count);
}

}  // namespace bs::reduce
