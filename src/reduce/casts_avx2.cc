// Casts with AVX2 and F16C; kernels_x86.h names the code that this file must not contain.
#include <immintrin.h>

#include "reduce/casts_x86.h"
#include "reduce/kernels_x86.h"

namespace bs::reduce {
namespace {

struct Vector {
  using Floats = __m256;
  static constexpr size_t kElements = 8;
  static __m256 Load(const unsigned char* from) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)));
  }
  static void Store(unsigned char* to, __m256 floats) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm256_castps_si256(floats));
  }
  static __m256 Spread(float value) { return _mm256_set1_ps(value); }
  static __m256 Multiply(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
  static __m256 Add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  static bool HasNan(__m256 a, __m256 b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
  }
  static __m256 OneNan(__m256 floats) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(floats, nan, _mm256_cmp_ps(floats, floats, _CMP_UNORD_Q));
  }
};

__m128i LoadHalves(const unsigned char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
}

void StoreHalves(unsigned char* to, __m128i halves) {
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), halves);
}

struct Float16 {
  static __m256 Load(const unsigned char* from) { return _mm256_cvtph_ps(LoadHalves(from)); }
  static void Store(unsigned char* to, __m256 first, __m256 second) {
    StoreHalves(to, _mm256_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT));
    StoreHalves(to + sizeof(__m128i), _mm256_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct Bfloat16 {
  static __m256 Load(const unsigned char* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(from)), 16));
  }
  static void Store(unsigned char* to, __m256 first, __m256 second) {
    // By quarters: first, second, first, second.
    const __m256i packed = _mm256_packus_epi32(Rounded(first), Rounded(second));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static __m256i Rounded(__m256 floats) {
    const __m256i bits = _mm256_castps_si256(floats);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
    return _mm256_srli_epi32(rounded, 16);
  }
};

constexpr Casts kCasts = {.name = "avx2",
                          .float16 = CastsOf<Vector, Float16>::kCasts,
                          .bfloat16 = CastsOf<Vector, Bfloat16>::kCasts};

}  // namespace

const Casts& Avx2Casts() { return kCasts; }

}  // namespace bs::reduce
