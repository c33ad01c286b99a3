// Casts with AVX-512; kernels_x86.h names the code that this file must not contain.
#include <immintrin.h>

#include "reduce/casts_x86.h"
#include "reduce/kernels_x86.h"

namespace bs::reduce {
namespace {

struct Vector {
  using Floats = __m512;
  static constexpr size_t kElements = 16;
  static __m512 Load(const unsigned char* from) { return _mm512_loadu_ps(from); }
  static void Store(unsigned char* to, __m512 floats) { _mm512_storeu_ps(to, floats); }
  static __m512 Spread(float value) { return _mm512_set1_ps(value); }
  static __m512 Multiply(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
  static __m512 Add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
  static bool HasNan(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0; }
  static __m512 OneNan(__m512 floats) {
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(floats, _mm512_cmp_ps_mask(floats, floats, _CMP_UNORD_Q), nan);
  }
};

__m256i LoadHalves(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}

void StoreHalves(unsigned char* to, __m256i halves) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), halves);
}

struct Float16 {
  static __m512 Load(const unsigned char* from) { return _mm512_cvtph_ps(LoadHalves(from)); }
  static void Store(unsigned char* to, __m512 first, __m512 second) {
    StoreHalves(to, _mm512_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT));
    StoreHalves(to + sizeof(__m256i), _mm512_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT));
  }
};

// Not with AVX512_BF16, which drops subnormals.
struct Bfloat16 {
  static __m512 Load(const unsigned char* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalves(from)), 16));
  }
  static void Store(unsigned char* to, __m512 first, __m512 second) {
    // By quarters of both vectors; then the quarters in their order.
    const __m512i packed = _mm512_packus_epi32(Rounded(first), Rounded(second));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, packed));
  }
  static __m512i Rounded(__m512 floats) {
    const __m512i bits = _mm512_castps_si512(floats);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
    return _mm512_srli_epi32(rounded, 16);
  }
};

constexpr Casts kCasts = {.name = "avx512",
                          .float16 = CastsOf<Vector, Float16>::kCasts,
                          .bfloat16 = CastsOf<Vector, Bfloat16>::kCasts};

}  // namespace

const Casts& Avx512Casts() { return kCasts; }

}  // namespace bs::reduce
