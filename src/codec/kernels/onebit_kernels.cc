// The specification of onebit's loops, and the choice of kernels.
#include "codec/kernels/onebit_kernels.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "reduce/casts.h"

namespace bs::codec {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kEightBytes = kLanes * sizeof(float);

using Eight = std::array<float, kLanes>;

Eight Coded(const OnebitInput& input, size_t at) {
  Eight values;
  std::memcpy(values.data(), input.in + at * sizeof(float), kEightBytes);
  if (input.residual == nullptr) return values;
  for (size_t i = 0; i < kLanes; ++i) values[i] += input.ratio * input.residual[at + i];
  return values;
}

float WithSign(float scale, uint32_t sign) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scale) | sign << 31U);
}

void AddMagnitudes(const OnebitInput& input, size_t eights, double* lanes) {
  for (size_t at = 0; at < kLanes * eights; at += kLanes) {
    const Eight values = Coded(input, at);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] += std::fabs(static_cast<double>(values[i]));
  }
}

void Code(const OnebitInput& input, size_t eights, float scale, unsigned char* signs) {
  for (size_t at = 0; at < kLanes * eights; at += kLanes) {
    Eight values = Coded(input, at);
    uint32_t byte = 0;
    for (size_t i = 0; i < kLanes; ++i) {
      const uint32_t sign = std::bit_cast<uint32_t>(values[i]) >> 31U;
      byte |= sign << i;
      values[i] -= WithSign(scale, sign);
    }
    *signs++ = static_cast<unsigned char>(byte);
    if (input.residual != nullptr) std::memcpy(input.residual + at, values.data(), kEightBytes);
  }
}

template <bool kAdd>
void PutSigns(const unsigned char* signs, float scale, size_t eights, unsigned char* target) {
  for (size_t at = 0; at < eights; ++at, target += kEightBytes) {
    Eight values{};  // copied in and out, because an array may start at any byte of a message
    if constexpr (kAdd) std::memcpy(values.data(), target, kEightBytes);
    for (size_t i = 0; i < kLanes; ++i) {
      const float value = WithSign(scale, uint32_t{signs[at]} >> i & 1U);
      const float sum = kAdd ? values[i] + value : value;
      // Whatever sign or payload the hardware gives it.
      values[i] = sum == sum ? sum : std::numeric_limits<float>::quiet_NaN();
    }
    std::memcpy(target, values.data(), kEightBytes);
  }
}

constexpr OnebitKernels kScalar = {.name = "scalar",
                                   .add_magnitudes = AddMagnitudes,
                                   .code = Code,
                                   .put = PutSigns<false>,
                                   .add = PutSigns<true>};

struct Found {
  std::array<const OnebitKernels*, 3> kernels{&kScalar};
  size_t count = 1;
};

// Takes what src/reduce has found of this CPU.
Found Choose() {
  Found found;
#ifdef BS_CODEC_X86
  for (const reduce::Casts* const casts : reduce::AvailableCasts()) {
    if (casts->name == "avx2") found.kernels[found.count++] = &Avx2Onebit();
    if (casts->name == "avx512") found.kernels[found.count++] = &Avx512Onebit();
  }
#endif
  return found;
}

}  // namespace

const OnebitKernels& ScalarOnebit() { return kScalar; }

std::span<const OnebitKernels* const> AvailableOnebit() {
  static const Found found = Choose();
  return {found.kernels.data(), found.count};
}

}  // namespace bs::codec
