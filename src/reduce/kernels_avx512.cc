// Sums with AVX-512, two vectors of 64 bytes at a time; kernels_x86.h names the code that this file
// must not contain.
#include <immintrin.h>

#include "reduce/kernels_x86.h"
#include "reduce/loops_x86.h"

namespace bs::reduce {
namespace {

constexpr size_t kVectorBytes = sizeof(__m512i);

// A step's sums in float32.
struct Floats {
  __m512 first;
  __m512 second;

  static Floats Add(Floats a, Floats b) {
    return {_mm512_add_ps(a.first, b.first), _mm512_add_ps(a.second, b.second)};
  }
  // Replaces any NaN by the specification's NaN.  Most sums have none: a comparison tells it of
  // both vectors.
  Floats WithOneNan() const {
    const __mmask16 either = _mm512_cmp_ps_mask(first, second, _CMP_UNORD_Q);
    if (__builtin_expect(either == 0, 1)) return *this;
    return {WithOneNan(first), WithOneNan(second)};
  }
  static __m512 WithOneNan(__m512 sums) {
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(sums, _mm512_cmp_ps_mask(sums, sums, _CMP_UNORD_Q), nan);
  }
};

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static constexpr size_t kStepBytes = 2 * kVectorBytes;
  static constexpr bool kPrefetch = false;
  static Floats Load(const unsigned char* from) {
    return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + kVectorBytes)};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  static Floats Round(Floats sums) { return sums; }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    _mm512_storeu_ps(to, sums.first);
    _mm512_storeu_ps(to + kVectorBytes, sums.second);
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = false;
  static __m512d Load(const unsigned char* from) { return _mm512_loadu_pd(from); }
  static __m512d Add(__m512d a, __m512d b) { return _mm512_add_pd(a, b); }
  static __m512d Round(__m512d sums) { return sums; }
  static void Store(unsigned char* to, __m512d sums) {
    const __m512d nan = _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000));
    const __mmask8 is_nan = _mm512_cmp_pd_mask(sums, sums, _CMP_UNORD_Q);
    _mm512_storeu_pd(to, _mm512_mask_mov_pd(sums, is_nan, nan));
  }
};

// Widened from memory, not from a register, and stored by halves: that saves the shuffles.
struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = true;
  static Floats Load(const unsigned char* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(HalfVector(from, 0))),
            _mm512_cvtph_ps(_mm256_loadu_si256(HalfVector(from, 1)))};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  static Floats Round(Floats sums) {
    return {_mm512_cvtph_ps(Narrow(sums.first)), _mm512_cvtph_ps(Narrow(sums.second))};
  }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), Narrow(sums.first));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to) + 1, Narrow(sums.second));
  }
  static const __m256i_u* HalfVector(const unsigned char* from, size_t index) {
    return reinterpret_cast<const __m256i_u*>(from) + index;
  }
  static __m256i Narrow(__m512 sums) { return _mm512_cvtps_ph(sums, _MM_FROUND_TO_NEAREST_INT); }
};

// Elements at even and at odd places are widened where they stand, which saves all shuffles.  Not
// with AVX512_BF16, which drops subnormals.
struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = true;
  static Floats Load(const unsigned char* from) {
    __m512i both = _mm512_loadu_si512(from);
    // Empty, but makes the compiler load each vector once, not once for each use.  Without it, sums
    // in place took 1.4 to 1.9 times as long in memory (Zen 5, GCC 12; reduce_benchmark).
    asm("" : "+v"(both));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)), Upper(both)};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  // A NaN stays a NaN: the hardware's NaN for operands without a lower half has no lower half
  // either.
  static Floats Round(Floats sums) {
    return {Upper(Rounded(sums.first)), Upper(Rounded(sums.second))};
  }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    const __m512i even = _mm512_srli_epi32(Rounded(sums.first), 16);
    _mm512_storeu_si512(to, _mm512_mask_mov_epi16(even, 0xaaaaaaaa, Rounded(sums.second)));
  }
  static __m512 Upper(__m512i vector) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    return _mm512_castsi512_ps(_mm512_and_si512(vector, mask));
  }
  // The rounded sum in the upper half of each 32 bits; the lower half is of no use.
  static __m512i Rounded(__m512 sums) {
    const __m512i bits = _mm512_castps_si512(sums);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
  }
};

struct Integer {
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = false;
  static __m512i Load(const unsigned char* from) { return _mm512_loadu_si512(from); }
  static __m512i Round(__m512i sums) { return sums; }
  static void Store(unsigned char* to, __m512i sums) { _mm512_storeu_si512(to, sums); }
};

struct Int8 : Integer {
  static constexpr size_t kElementBytes = 1;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }
};

struct Int32 : Integer {
  static constexpr size_t kElementBytes = 4;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};

struct Int64 : Integer {
  static constexpr size_t kElementBytes = 8;
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi64(a, b); }
};

// Position is the DType code; 7 to 11 are no DType that we sum.
constexpr Kernels kKernels = {
    .name = "avx512",
    .sum = {Sum<Float32>, Sum<Float64>, Sum<Float16>, Sum<Int8>, Sum<Int32>, Sum<Int8>, Sum<Int64>,
            nullptr, nullptr, nullptr, nullptr, nullptr, Sum<Bfloat16>},
};

}  // namespace

const Kernels& Avx512Kernels() { return kKernels; }

}  // namespace bs::reduce
