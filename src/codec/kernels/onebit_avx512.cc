// Onebit with AVX-512: onebit_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>

#include "codec/kernels/onebit_kernels.h"

namespace bs::codec {
namespace {

// The first `count` of sixteen elements.
__mmask16 First(size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1U);
}

__m512 SignBits() { return _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MIN)); }

// Elements behind `mask` are 0.
__m512 Coded(const OnebitInput& input, size_t at, __mmask16 mask) {
  const __m512 values = _mm512_maskz_loadu_ps(mask, input.in + at * sizeof(float));
  if (input.residual == nullptr) return values;
  const __m512 kept =
      _mm512_mul_ps(_mm512_set1_ps(input.ratio), _mm512_maskz_loadu_ps(mask, input.residual + at));
  return _mm512_add_ps(values, kept);
}

// A lane gets its two elements in their order.
void AddMagnitudes(const OnebitInput& input, size_t eights, double* lanes) {
  __m512d sums = _mm512_loadu_pd(lanes);
  for (size_t at = 0; at < 8 * eights; at += 16) {
    const __m512 values = Coded(input, at, First(8 * eights - at));
    const __m512 sizes = _mm512_andnot_ps(SignBits(), values);
    sums = _mm512_add_pd(sums, _mm512_cvtps_pd(_mm512_castps512_ps256(sizes)));
    sums = _mm512_add_pd(sums, _mm512_cvtps_pd(_mm512_extractf32x8_ps(sizes, 1)));
  }
  _mm512_storeu_pd(lanes, sums);
}

void Code(const OnebitInput& input, size_t eights, float scale, unsigned char* signs) {
  const __m512 magnitude = _mm512_set1_ps(scale);
  for (size_t i = 0; i < eights; i += 2) {
    const __mmask16 mask = First(8 * (eights - i));
    const __m512 values = Coded(input, 8 * i, mask);
    const auto bits = static_cast<unsigned>(_mm512_movepi32_mask(_mm512_castps_si512(values)));
    signs[i] = static_cast<unsigned char>(bits);
    if (i + 1 < eights) signs[i + 1] = static_cast<unsigned char>(bits >> 8U);
    if (input.residual == nullptr) continue;
    const __m512 sent = _mm512_or_ps(magnitude, _mm512_and_ps(SignBits(), values));
    _mm512_mask_storeu_ps(input.residual + 8 * i, mask, _mm512_sub_ps(values, sent));
  }
}

__m512 WithSigns(__m512 magnitude, __mmask16 minus) {
  return _mm512_mask_or_ps(magnitude, minus, magnitude, SignBits());
}

// The values of two bytes of signs, or of the last byte.
__m512 Values(const unsigned char* signs, size_t i, size_t eights, __m512 magnitude) {
  const unsigned high = i + 1 < eights ? signs[i + 1] : 0U;
  return WithSigns(magnitude, static_cast<__mmask16>(signs[i] | high << 8U));
}

__m512 OneNan(__m512 values) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
  return _mm512_mask_mov_ps(values, _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q), nan);
}

// Most values have no NaN: a comparison tells it of both vectors.
void StoreTwo(unsigned char* to, __m512 first, __m512 second) {
  if (__builtin_expect(_mm512_cmp_ps_mask(first, second, _CMP_UNORD_Q), 0) != 0) {
    first = OneNan(first);
    second = OneNan(second);
  }
  _mm512_storeu_ps(to, first);
  _mm512_storeu_ps(to + sizeof(__m512), second);
}

// Two vectors at a time, then the rest by masks.
template <bool kAdd>
void PutSigns(const unsigned char* signs, float scale, size_t eights, unsigned char* target) {
  const __m512 magnitude = _mm512_set1_ps(scale);
  size_t i = 0;
  for (; i + 4 <= eights; i += 4, target += 2 * sizeof(__m512)) {
    uint32_t minus = 0;
    __builtin_memcpy(&minus, signs + i, sizeof(minus));
    __m512 first = WithSigns(magnitude, static_cast<__mmask16>(minus));
    __m512 second = WithSigns(magnitude, static_cast<__mmask16>(minus >> 16U));
    if (kAdd) {
      first = _mm512_add_ps(_mm512_loadu_ps(target), first);
      second = _mm512_add_ps(_mm512_loadu_ps(target + sizeof(__m512)), second);
    }
    StoreTwo(target, first, second);
  }
  for (; i < eights; i += 2, target += sizeof(__m512)) {
    const __mmask16 mask = First(8 * (eights - i));
    __m512 values = Values(signs, i, eights, magnitude);
    if (kAdd) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, target), values);
    _mm512_mask_storeu_ps(target, mask, OneNan(values));
  }
}

constexpr OnebitKernels kKernels = {.name = "avx512",
                                    .add_magnitudes = AddMagnitudes,
                                    .code = Code,
                                    .put = PutSigns<false>,
                                    .add = PutSigns<true>};

}  // namespace

const OnebitKernels& Avx512Onebit() { return kKernels; }

}  // namespace bs::codec
