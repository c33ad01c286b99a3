// Sums with AVX-512, 64 bytes at a time; see kernels_x86.h for what this file must not contain.
#include <immintrin.h>

#include "reduce/kernels_x86.h"

namespace bs::reduce {
namespace {

constexpr size_t kVectorBytes = sizeof(__m512i);

// Each struct below adds the elements of one dtype in two vectors of raw bits.

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static __m512i Add(__m512i a, __m512i b) {
    return _mm512_castps_si512(AddFloats(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
  }
  // The one NaN of the specification for any NaN.
  static __m512 AddFloats(__m512 a, __m512 b) {
    const __m512 sum = _mm512_add_ps(a, b);
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(sum, _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q), nan);
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static __m512i Add(__m512i a, __m512i b) {
    const __m512d sum = _mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b));
    const __m512d nan = _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000));
    const __mmask8 is_nan = _mm512_cmp_pd_mask(sum, sum, _CMP_UNORD_Q);
    return _mm512_castpd_si512(_mm512_mask_mov_pd(sum, is_nan, nan));
  }
};

struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static __m512i Add(__m512i a, __m512i b) {
    const __m256i low = AddHalves(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
    const __m256i high =
        AddHalves(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  static __m256i AddHalves(__m256i a, __m256i b) {
    const __m512 sum = Float32::AddFloats(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
    return _mm512_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT);
  }
};

// Elements at even and at odd places are widened where they stand, which saves all shuffles.  Not
// with AVX512_BF16, which drops subnormals.
struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  static __m512i Add(__m512i a, __m512i b) {
    // Empty, but makes the compiler load each vector once, not once for each use.  Without it, sums
    // in place took 1.4 to 1.9 times as long in memory (Zen 5, GCC 12; reduce_benchmark).
    asm("" : "+v"(a), "+v"(b));
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const __m512i even = AddWidened(_mm512_slli_epi32(a, 16), _mm512_slli_epi32(b, 16));
    const __m512i odd = AddWidened(_mm512_and_si512(a, high), _mm512_and_si512(b, high));
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
  }
  // The rounded sum in the upper half of each 32 bits; what is below it is of no use.
  static __m512i AddWidened(__m512i a, __m512i b) {
    const __m512i sum = Float32::Add(a, b);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(sum, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(0x7fff)), is_odd);
  }
};

struct Int8 {
  static constexpr size_t kElementBytes = 1;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }
};

struct Int32 {
  static constexpr size_t kElementBytes = 4;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};

struct Int64 {
  static constexpr size_t kElementBytes = 8;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi64(a, b); }
};

template <typename Element>
void Sum2(void* target, const void* a, const void* b, size_t count) {
  auto* out = static_cast<unsigned char*>(target);
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  const size_t size_bytes = count * Element::kElementBytes;
  const size_t whole_bytes = size_bytes / kVectorBytes * kVectorBytes;
  for (size_t i = 0; i < whole_bytes; i += kVectorBytes) {
    _mm512_storeu_si512(out + i,
                        Element::Add(_mm512_loadu_si512(x + i), _mm512_loadu_si512(y + i)));
  }
  if (whole_bytes == size_bytes) return;
  // Bytes outside the mask are neither read nor written.
  const __mmask64 tail = (__mmask64{1} << (size_bytes - whole_bytes)) - 1;
  const __m512i sum = Element::Add(_mm512_maskz_loadu_epi8(tail, x + whole_bytes),
                                   _mm512_maskz_loadu_epi8(tail, y + whole_bytes));
  _mm512_mask_storeu_epi8(out + whole_bytes, tail, sum);
}

template <typename Element>
void Sum(void* accumulator, const void* addend, size_t count) {
  Sum2<Element>(accumulator, accumulator, addend, count);
}

// Position is the DType code; 7 to 11 are no DType that we sum.
constexpr Kernels kKernels = {
    .name = "avx512",
    .sum = {Sum<Float32>, Sum<Float64>, Sum<Float16>, Sum<Int8>, Sum<Int32>, Sum<Int8>, Sum<Int64>,
            nullptr, nullptr, nullptr, nullptr, nullptr, Sum<Bfloat16>},
    .sum2 = {Sum2<Float32>, Sum2<Float64>, Sum2<Float16>, Sum2<Int8>, Sum2<Int32>, Sum2<Int8>,
             Sum2<Int64>, nullptr, nullptr, nullptr, nullptr, nullptr, Sum2<Bfloat16>},
};

}  // namespace

const Kernels& Avx512Kernels() { return kKernels; }

}  // namespace bs::reduce
