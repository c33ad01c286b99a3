// The specification of dithering's loops, and the choice of kernels.
#include "codec/kernels/dithering_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "reduce/casts.h"

namespace bs::codec {
namespace {

constexpr size_t kBlockBytes = kDitherBlock * sizeof(float);
constexpr size_t kSquareLanes = 8;
constexpr uint32_t kSignBit = 0x80000000U;
constexpr uint32_t kFractionBits = 23;  // of a float32
constexpr uint32_t kFractionMask = (1U << kFractionBits) - 1;
constexpr uint32_t kExponentBias = 127;

using DitherBlock = std::array<float, kDitherBlock>;
using DitherCodes = std::array<uint32_t, kDitherBlock>;

DitherBlock ReadBlock(const DitherInput& input, size_t at) {
  DitherBlock values;
  std::memcpy(values.data(), input.in + at * sizeof(float), kBlockBytes);
  if (input.residual == nullptr) return values;
  for (size_t i = 0; i < kDitherBlock; ++i) values[i] += input.ratio * input.residual[at + i];
  return values;
}

uint32_t Largest(const DitherInput& input, size_t blocks) {
  uint32_t largest = 0;
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    for (const float value : ReadBlock(input, at)) {
      largest = std::max(largest, std::bit_cast<uint32_t>(value) & ~kSignBit);
    }
  }
  return largest;
}

void AddSquares(const DitherInput& input, size_t blocks, double* lanes) {
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    const DitherBlock values = ReadBlock(input, at);
    for (size_t i = 0; i < kDitherBlock; ++i) {
      lanes[i % kSquareLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
}

// The next step: sixteen numbers below 65,536.
DitherCodes Draw(DitherRandom* random) {
  DitherCodes drawn;
  for (size_t lane = 0; lane < 4; ++lane) {
    uint64_t mixed = random->first[lane];
    const uint64_t kept = random->second[lane];
    const uint64_t word = mixed + kept;
    for (size_t i = 0; i < 4; ++i) drawn[4 * lane + i] = word >> 16 * i & 0xffffU;
    mixed ^= mixed << 23U;
    random->first[lane] = kept;
    random->second[lane] = mixed ^ kept ^ mixed >> 17U ^ kept >> 26U;
  }
  return drawn;
}

// 1 if an element at `share` of the gap between two levels gets the upper one.
uint32_t GoesUp(float share, uint32_t drawn) {
  return share * 65536.0F > static_cast<float>(drawn) + 0.5F ? 1 : 0;
}

// `share` of the norm, from 0 to 1.
uint32_t LevelOf(const DitherLevels& levels, float share, uint32_t drawn) {
  if (!levels.is_natural) {
    const float scaled = share * static_cast<float>(levels.count);
    const auto below = static_cast<uint32_t>(scaled);
    return below + GoesUp(scaled - static_cast<float>(below), drawn);
  }
  const auto bits = std::bit_cast<uint32_t>(share);
  const uint32_t exponent = (bits >> kFractionBits) + levels.count;
  if (exponent <= kExponentBias) {
    return GoesUp(share * static_cast<float>(1U << (levels.count - 1)), drawn);
  }
  // The fraction is the share of the gap, in 2^-23.
  return exponent - kExponentBias + ((bits & kFractionMask) > (drawn << 7U | 64U) ? 1 : 0);
}

float ValueOf(const DitherLevels& levels, uint32_t level, uint32_t sign) {
  float share = static_cast<float>(level) / static_cast<float>(levels.count);
  if (levels.is_natural) {
    const uint32_t exponent = level + kExponentBias - levels.count;
    share = level == 0 ? 0 : std::bit_cast<float>(exponent << kFractionBits);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(share * levels.norm) | sign << 31U);
}

void PackCodes(const DitherCodes& values, uint32_t width, unsigned char* codes) {
  const size_t in_byte = 8 / std::min(width, 8U);
  for (size_t i = 0; i < kDitherBlock; i += in_byte) {
    uint32_t packed = 0;
    for (size_t j = 0; j < in_byte; ++j) packed |= values[i + j] << width * j;
    *codes++ = static_cast<unsigned char>(packed);
    if (width == 16) *codes++ = static_cast<unsigned char>(packed >> 8U);
  }
}

DitherCodes UnpackCodes(const unsigned char* codes, uint32_t width) {
  DitherCodes values;
  for (size_t i = 0; i < kDitherBlock; ++i) {
    const size_t bit = i * width;
    uint32_t word = codes[bit / 8];
    if (width == 16) word |= uint32_t{codes[bit / 8 + 1]} << 8U;
    values[i] = word >> bit % 8 & ((1U << width) - 1);
  }
  return values;
}

void CodeBlocks(const DitherInput& input, const DitherLevels& levels, size_t blocks,
                DitherRandom* random, unsigned char* codes) {
  const float divisor = levels.norm > 0 ? levels.norm : 1;
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    DitherBlock values = ReadBlock(input, at);
    const DitherCodes drawn = Draw(random);
    DitherCodes coded;
    for (size_t i = 0; i < kDitherBlock; ++i) {
      const uint32_t level = LevelOf(levels, std::fabs(values[i]) / divisor, drawn[i]);
      const uint32_t sign = level == 0 ? 0 : std::bit_cast<uint32_t>(values[i]) >> 31U;
      coded[i] = level | sign << (levels.width - 1);
      values[i] -= ValueOf(levels, level, sign);
    }
    PackCodes(coded, levels.width, codes);
    codes += kDitherBlock * levels.width / 8;
    if (input.residual != nullptr) std::memcpy(input.residual + at, values.data(), kBlockBytes);
  }
}

template <bool kAdd>
void PutLevels(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
               unsigned char* target) {
  const uint32_t most = (1U << (levels.width - 1)) - 1;
  for (size_t block = 0; block < blocks; ++block, target += kBlockBytes) {
    DitherBlock values{};  // copied in and out, because an array may start at any byte of a message
    if constexpr (kAdd) std::memcpy(values.data(), target, kBlockBytes);
    const DitherCodes coded = UnpackCodes(codes, levels.width);
    codes += kDitherBlock * levels.width / 8;
    for (size_t i = 0; i < kDitherBlock; ++i) {
      const float value = ValueOf(levels, coded[i] & most, coded[i] >> (levels.width - 1));
      const float sum = kAdd ? values[i] + value : value;
      // Whatever sign or payload the hardware gives it.
      values[i] = sum == sum ? sum : std::numeric_limits<float>::quiet_NaN();
    }
    std::memcpy(target, values.data(), kBlockBytes);
  }
}

constexpr DitherKernels kScalarDithering = {.name = "scalar",
                                            .largest = Largest,
                                            .add_squares = AddSquares,
                                            .code = CodeBlocks,
                                            .put = PutLevels<false>,
                                            .add = PutLevels<true>};

struct FoundDithering {
  std::array<const DitherKernels*, 3> kernels{&kScalarDithering};
  size_t count = 1;
};

// Takes what src/reduce has found of this CPU.
FoundDithering ChooseDithering() {
  FoundDithering found;
#ifdef BS_CODEC_X86
  for (const reduce::Casts* const casts : reduce::AvailableCasts()) {
    if (casts->name == "avx2") found.kernels[found.count++] = &Avx2Dithering();
    if (casts->name == "avx512") found.kernels[found.count++] = &Avx512Dithering();
  }
#endif
  return found;
}

}  // namespace

const DitherKernels& ScalarDithering() { return kScalarDithering; }

std::span<const DitherKernels* const> AvailableDithering() {
  static const FoundDithering found = ChooseDithering();
  return {found.kernels.data(), found.count};
}

}  // namespace bs::codec
