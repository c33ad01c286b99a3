// Two-bit codes: the arithmetic without branches, four elements a byte, so that a compiler can
// vectorise it.
#include "reduce/two_bit.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "reduce/float_environment.h"

namespace bs::reduce {
namespace {

constexpr size_t kPerByte = 4;
constexpr unsigned kCodeBits = 2;
constexpr unsigned kPlus = 3;
constexpr unsigned kMinus = 2;

float Load(const unsigned char* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void Store(float value, unsigned char* to) { std::memcpy(to, &value, sizeof(value)); }

// The code of what reaches the threshold, which is taken out of `residual`.
unsigned TakeCode(float threshold, float gradient, float* residual) {
  const float value = *residual + gradient;
  const bool plus = value >= threshold;
  const bool minus = value <= -threshold;
  const float sent = plus ? threshold : (minus ? -threshold : 0.0F);
  *residual = value - sent;
  return plus ? kPlus : (minus ? kMinus : 0U);
}

unsigned char QuantizeByte(float threshold, const unsigned char* in, float* residual,
                           size_t count) {
  unsigned byte = 0;
  for (size_t i = 0; i < kPerByte; ++i) {
    byte <<= kCodeBits;
    if (i < count) byte |= TakeCode(threshold, Load(in + i * sizeof(float)), &residual[i]);
  }
  return static_cast<unsigned char>(byte);
}

// The value of element i; `values` by code.
float ValueAt(const float (&values)[4], const unsigned char* words, size_t i) {
  const size_t place = kPerByte - 1 - i % kPerByte;
  return values[words[i / kPerByte] >> (kCodeBits * place) & 3U];
}

}  // namespace

void QuantizeTwoBit(float threshold, const void* in, float* residual, void* words, size_t count) {
  BS_CHECK(threshold > 0);
  const DefaultFloatEnvironment environment;
  const auto* const from = static_cast<const unsigned char*>(in);
  auto* const to = static_cast<unsigned char*>(words);
  const size_t whole = count / kPerByte;
  for (size_t byte = 0; byte < whole; ++byte) {
    const size_t first = byte * kPerByte;
    to[byte] = QuantizeByte(threshold, from + first * sizeof(float), residual + first, kPerByte);
  }
  const size_t rest = whole * kPerByte;
  if (count % kPerByte != 0) {
    to[whole] = QuantizeByte(threshold, from + rest * sizeof(float), residual + rest, count - rest);
  }
  const size_t used = whole + (count % kPerByte != 0 ? 1 : 0);
  std::fill(to + used, to + TwoBitBytes(count), static_cast<unsigned char>(0));
}

void DequantizeTwoBit(float threshold, const void* words, void* target, size_t count) {
  const float values[4] = {0, 0, -threshold, threshold};
  const auto* const from = static_cast<const unsigned char*>(words);
  auto* const to = static_cast<unsigned char*>(target);
  for (size_t i = 0; i < count; ++i) Store(ValueAt(values, from, i), to + i * sizeof(float));
}

void AddTwoBit(float threshold, const void* words, void* sum, size_t count) {
  const DefaultFloatEnvironment environment;
  const float values[4] = {0, 0, -threshold, threshold};
  const auto* const from = static_cast<const unsigned char*>(words);
  auto* const to = static_cast<unsigned char*>(sum);
  for (size_t i = 0; i < count; ++i) {
    const float total = Load(to + i * sizeof(float)) + ValueAt(values, from, i);
    // Whatever sign or payload the hardware gives it.
    Store(total == total ? total : std::numeric_limits<float>::quiet_NaN(), to + i * sizeof(float));
  }
}

}  // namespace bs::reduce
