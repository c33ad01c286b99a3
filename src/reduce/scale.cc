// Scale: one element at a time, in portable arithmetic that compilers vectorise.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "reduce/float_environment.h"
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

}  // namespace bs::reduce
