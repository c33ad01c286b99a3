// Sums of float16 with AVX512-FP16, which adds halves as they are; kernels_x86.h names the code
// that this file must not contain.
#include <immintrin.h>

#include "reduce/kernels_x86.h"
#include "reduce/loops_x86.h"

namespace bs::reduce {
namespace {

constexpr size_t kVectorBytes = sizeof(__m512i);

// Rounds the exact sum once; the specification's way through float32 gives the same bits.
struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = false;
  static __m512h Load(const unsigned char* from) { return _mm512_loadu_ph(from); }
  static __m512h Add(__m512h a, __m512h b) { return _mm512_add_ph(a, b); }
  static __m512h Round(__m512h sums) { return sums; }
  static void Store(unsigned char* to, __m512h sums) {
    const __mmask32 is_nan = _mm512_cmp_ph_mask(sums, sums, _CMP_UNORD_Q);
    const __m512i nan = _mm512_set1_epi16(0x7e00);
    _mm512_storeu_si512(to, _mm512_mask_mov_epi16(_mm512_castph_si512(sums), is_nan, nan));
  }
};

}  // namespace

Kernels::SumFn Avx512Fp16Sum() { return Sum<Float16>; }

}  // namespace bs::reduce
