// The loops of topk and randomk with AVX-512: picks_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>

#include "codec/kernels/picks_kernels.h"

namespace bs::codec {
namespace {

constexpr size_t kSixteen = 16;
constexpr int kInfiniteBits16 = 0x7f800000;

// The first `count` of sixteen elements.
__mmask16 FirstOfSixteen(size_t count) {
  return static_cast<__mmask16>(count >= kSixteen ? 0xffffU : (1U << count) - 1U);
}

// Elements behind `mask` are 0.
__m512 CodedSixteen(const PickInput& input, size_t at, __mmask16 mask) {
  const __m512 values = _mm512_maskz_loadu_ps(mask, input.in + at * sizeof(float));
  if (input.residual == nullptr) return values;
  const __m512 residual = _mm512_maskz_loadu_ps(mask, input.residual + at);
  return _mm512_add_ps(values, _mm512_mul_ps(_mm512_set1_ps(input.ratio), residual));
}

__m512i MagnitudesOfSixteen(const PickInput& input, size_t at, __mmask16 mask) {
  const __m512i bits = _mm512_castps_si512(CodedSixteen(input, at, mask));
  return _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MAX));
}

bool AreFinite16(const PickInput& input, size_t count) {
  const __m512i infinite = _mm512_set1_epi32(kInfiniteBits16);
  __mmask16 wrong = 0;
  for (size_t at = 0; at < count; at += kSixteen) {
    const __m512i magnitudes = MagnitudesOfSixteen(input, at, FirstOfSixteen(count - at));
    wrong = static_cast<__mmask16>(wrong | _mm512_cmpge_epi32_mask(magnitudes, infinite));
  }
  return wrong == 0;
}

void CountDigits16(const PickInput& input, size_t count, const PickDigit& digit,
                   uint32_t* buckets) {
  const __m128i above = _mm_cvtsi32_si128(static_cast<int>(digit.shift + digit.bits));
  const __m128i below = _mm_cvtsi32_si128(static_cast<int>(digit.shift));
  const __m512i prefix = _mm512_set1_epi32(static_cast<int>(digit.prefix));
  const __m512i digit_mask = _mm512_set1_epi32(static_cast<int>((1U << digit.bits) - 1U));
  for (size_t at = 0; at < count; at += kSixteen) {
    const __mmask16 mask = FirstOfSixteen(count - at);
    const __m512i magnitudes = MagnitudesOfSixteen(input, at, mask);
    alignas(__m512i) uint32_t digits[kSixteen];
    _mm512_store_si512(digits, _mm512_and_si512(_mm512_srl_epi32(magnitudes, below), digit_mask));
    unsigned has = _mm512_mask_cmpeq_epi32_mask(mask, _mm512_srl_epi32(magnitudes, above), prefix);
    for (; has != 0; has &= has - 1) ++buckets[digits[__builtin_ctz(has)]];
  }
}

// Finds among sixteen elements.
[[gnu::always_inline]] inline size_t FindSixteen(const PickInput& input, size_t at, __mmask16 mask,
                                                 __m512i least, const PickLists& found) {
  const __m512 coded = CodedSixteen(input, at, mask);
  const __m512i magnitudes =
      _mm512_and_si512(_mm512_castps_si512(coded), _mm512_set1_epi32(INT32_MAX));
  const __mmask16 hits = _mm512_mask_cmpge_epi32_mask(mask, magnitudes, least);
  const __m512i lanes =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_epi32(static_cast<int>(at)));
  // Not compressed to memory, which takes some CPUs a hundred cycles.
  _mm512_storeu_si512(found.indices, _mm512_maskz_compress_epi32(hits, lanes));
  _mm512_storeu_ps(found.values, _mm512_maskz_compress_ps(hits, coded));
  return static_cast<size_t>(__builtin_popcount(hits));
}

size_t Find16(const PickInput& input, const PickRange& range, uint32_t least,
              const PickLists& found) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(least));
  const size_t end = range.first + range.count;
  size_t count = 0;
  size_t at = range.first;
  for (; at + kSixteen <= end; at += kSixteen) {
    const PickLists behind = {.indices = found.indices + count, .values = found.values + count};
    count += FindSixteen(input, at, FirstOfSixteen(kSixteen), bound, behind);
  }
  const PickLists behind = {.indices = found.indices + count, .values = found.values + count};
  return count + FindSixteen(input, at, FirstOfSixteen(end - at), bound, behind);
}

// The lowest `most` of the bits that are set.
__mmask16 LowestBits16(unsigned bits, size_t most) {
  unsigned taken = 0;
  for (; bits != 0 && most > 0; --most) {
    taken |= bits & (0U - bits);
    bits &= bits - 1;
  }
  return static_cast<__mmask16>(taken);
}

void Pick16(const PickInput& input, size_t count, const PickCut& cut, unsigned char* indices) {
  const __m512i least = _mm512_set1_epi32(static_cast<int>(cut.least));
  __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  size_t ties = cut.ties;
  for (size_t at = 0; at < count; at += kSixteen) {
    const __mmask16 mask = FirstOfSixteen(count - at);
    const __m512i magnitudes = MagnitudesOfSixteen(input, at, mask);
    __mmask16 picks = _mm512_mask_cmpgt_epi32_mask(mask, magnitudes, least);
    if (ties > 0) {
      const __mmask16 equal = _mm512_mask_cmpeq_epi32_mask(mask, magnitudes, least);
      const __mmask16 taken = LowestBits16(equal, ties);
      ties -= static_cast<size_t>(__builtin_popcount(taken));
      picks = static_cast<__mmask16>(picks | taken);
    }
    if (picks != 0) {
      const auto count_here = static_cast<size_t>(__builtin_popcount(picks));
      _mm512_mask_cvtepi32_storeu_epi16(indices, FirstOfSixteen(count_here),
                                        _mm512_maskz_compress_epi32(picks, lanes));
      indices += count_here * sizeof(uint16_t);
    }
    lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(kSixteen));
  }
}

void Fold16(const PickInput& input, size_t count) {
  const __m512 ratio = _mm512_set1_ps(input.ratio);
  size_t at = 0;
  for (; at + kSixteen <= count; at += kSixteen) {
    const __m512 values = _mm512_loadu_ps(input.in + at * sizeof(float));
    const __m512 kept = _mm512_mul_ps(ratio, _mm512_loadu_ps(input.residual + at));
    _mm512_storeu_ps(input.residual + at, _mm512_add_ps(values, kept));
  }
  const __mmask16 mask = FirstOfSixteen(count - at);
  _mm512_mask_storeu_ps(input.residual + at, mask, CodedSixteen(input, at, mask));
}

constexpr PickKernels kPicks16 = {.name = "avx512",
                                  .are_finite = AreFinite16,
                                  .count_digits = CountDigits16,
                                  .find = Find16,
                                  .pick = Pick16,
                                  .fold = Fold16};

}  // namespace

const PickKernels& Avx512Picks() { return kPicks16; }

}  // namespace bs::codec
