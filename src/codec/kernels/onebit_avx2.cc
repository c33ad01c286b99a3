// Onebit with AVX2: onebit_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>

#include "codec/kernels/onebit_kernels.h"

namespace bs::codec {
namespace {

__m256 Floats(const unsigned char* from) {
  return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)));
}

__m256 SignBits() { return _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN)); }

__m256 Coded(const OnebitInput& input, size_t at) {
  const __m256 values = Floats(input.in + at * sizeof(float));
  if (input.residual == nullptr) return values;
  const __m256 kept =
      _mm256_mul_ps(_mm256_set1_ps(input.ratio), _mm256_loadu_ps(input.residual + at));
  return _mm256_add_ps(values, kept);
}

void AddMagnitudes(const OnebitInput& input, size_t eights, double* lanes) {
  __m256d low = _mm256_loadu_pd(lanes);
  __m256d high = _mm256_loadu_pd(lanes + 4);
  for (size_t at = 0; at < 8 * eights; at += 8) {
    const __m256 sizes = _mm256_andnot_ps(SignBits(), Coded(input, at));
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(sizes)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(sizes, 1)));
  }
  _mm256_storeu_pd(lanes, low);
  _mm256_storeu_pd(lanes + 4, high);
}

void Code(const OnebitInput& input, size_t eights, float scale, unsigned char* signs) {
  const __m256 magnitude = _mm256_set1_ps(scale);
  for (size_t i = 0; i < eights; ++i) {
    const __m256 values = Coded(input, 8 * i);
    signs[i] = static_cast<unsigned char>(_mm256_movemask_ps(values));
    if (input.residual == nullptr) continue;
    const __m256 sent = _mm256_or_ps(magnitude, _mm256_and_ps(SignBits(), values));
    _mm256_storeu_ps(input.residual + 8 * i, _mm256_sub_ps(values, sent));
  }
}

__m256 Values(unsigned char signs, __m256 magnitude) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(signs), bits);
  const __m256 minus = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
  return _mm256_or_ps(magnitude, _mm256_and_ps(minus, SignBits()));
}

void Store(unsigned char* to, __m256 values) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to),
                      _mm256_castps_si256(_mm256_blendv_ps(values, nan, is_nan)));
}

void Put(const unsigned char* signs, float scale, size_t eights, unsigned char* target) {
  const __m256 magnitude = _mm256_set1_ps(scale);
  for (size_t i = 0; i < eights; ++i, target += sizeof(__m256)) {
    Store(target, Values(signs[i], magnitude));
  }
}

void Add(const unsigned char* signs, float scale, size_t eights, unsigned char* target) {
  const __m256 magnitude = _mm256_set1_ps(scale);
  for (size_t i = 0; i < eights; ++i, target += sizeof(__m256)) {
    Store(target, _mm256_add_ps(Floats(target), Values(signs[i], magnitude)));
  }
}

constexpr OnebitKernels kKernels = {
    .name = "avx2", .add_magnitudes = AddMagnitudes, .code = Code, .put = Put, .add = Add};

}  // namespace

const OnebitKernels& Avx2Onebit() { return kKernels; }

}  // namespace bs::codec
