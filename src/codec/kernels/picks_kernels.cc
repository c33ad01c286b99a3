// The specification of the loops of topk and randomk, and the choice of kernels.
#include "codec/kernels/picks_kernels.h"

#include <array>
#include <bit>
#include <cstring>

#include "reduce/casts.h"

namespace bs::codec {
namespace {

constexpr uint32_t kInfiniteBits = 0x7f800000;

float CodedAt(const PickInput& input, size_t at) {
  float value = 0;  // copied, because an array may start at any byte of a message
  std::memcpy(&value, input.in + at * sizeof(float), sizeof(float));
  if (input.residual == nullptr) return value;
  const float kept = input.ratio * input.residual[at];
  return value + kept;
}

uint32_t MagnitudeAt(const PickInput& input, size_t at) {
  return std::bit_cast<uint32_t>(CodedAt(input, at)) << 1U >> 1U;
}

bool AreFinite(const PickInput& input, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (MagnitudeAt(input, i) >= kInfiniteBits) return false;
  }
  return true;
}

void CountDigits(const PickInput& input, size_t count, const PickDigit& digit, uint32_t* buckets) {
  const uint32_t mask = (1U << digit.bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = MagnitudeAt(input, i);
    if (magnitude >> (digit.shift + digit.bits) != digit.prefix) continue;
    ++buckets[magnitude >> digit.shift & mask];
  }
}

size_t Find(const PickInput& input, const PickRange& range, uint32_t least,
            const PickLists& found) {
  size_t count = 0;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    if (MagnitudeAt(input, i) < least) continue;
    found.indices[count] = static_cast<uint32_t>(i);
    found.values[count] = CodedAt(input, i);
    ++count;
  }
  return count;
}

void Pick(const PickInput& input, size_t count, const PickCut& cut, unsigned char* indices) {
  size_t ties = cut.ties;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = MagnitudeAt(input, i);
    const bool is_tie = magnitude == cut.least && ties > 0;
    if (magnitude <= cut.least && !is_tie) continue;
    if (is_tie) --ties;
    const auto index = static_cast<uint16_t>(i);
    std::memcpy(indices, &index, sizeof(index));
    indices += sizeof(index);
  }
}

void Fold(const PickInput& input, size_t count) {
  for (size_t i = 0; i < count; ++i) input.residual[i] = CodedAt(input, i);
}

constexpr PickKernels kScalarPicks = {.name = "scalar",
                                      .are_finite = AreFinite,
                                      .count_digits = CountDigits,
                                      .find = Find,
                                      .pick = Pick,
                                      .fold = Fold};

struct FoundPicks {
  std::array<const PickKernels*, 3> kernels{&kScalarPicks};
  size_t count = 1;
};

// Takes what src/reduce has found of this CPU.
FoundPicks ChoosePicks() {
  FoundPicks found;
#ifdef BS_CODEC_X86
  for (const reduce::Casts* const casts : reduce::AvailableCasts()) {
    if (casts->name == "avx2") found.kernels[found.count++] = &Avx2Picks();
    if (casts->name == "avx512") found.kernels[found.count++] = &Avx512Picks();
  }
#endif
  return found;
}

}  // namespace

const PickKernels& ScalarPicks() { return kScalarPicks; }

std::span<const PickKernels* const> AvailablePicks() {
  static const FoundPicks found = ChoosePicks();
  return {found.kernels.data(), found.count};
}

}  // namespace bs::codec
