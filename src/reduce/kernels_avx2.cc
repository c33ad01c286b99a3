// Sums with AVX2 and F16C, two vectors of 32 bytes at a time; kernels_x86.h names the code that
// this file must not contain.
#include <immintrin.h>

#include "reduce/kernels_x86.h"
#include "reduce/loops_x86.h"

namespace bs::reduce {
namespace {

constexpr size_t kVectorBytes = sizeof(__m256i);

__m256i LoadVector(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}

void StoreVector(unsigned char* to, __m256i vector) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), vector);
}

// A step's sums in float32.
struct Floats {
  __m256 first;
  __m256 second;

  static Floats Add(Floats a, Floats b) {
    return {_mm256_add_ps(a.first, b.first), _mm256_add_ps(a.second, b.second)};
  }
  // Replaces any NaN by the specification's NaN.  Most sums have none: a comparison tells it of
  // both vectors.
  Floats WithOneNan() const {
    const __m256 either = _mm256_cmp_ps(first, second, _CMP_UNORD_Q);
    if (__builtin_expect(_mm256_movemask_ps(either) == 0, 1)) return *this;
    return {WithOneNan(first), WithOneNan(second)};
  }
  static __m256 WithOneNan(__m256 sums) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(sums, nan, _mm256_cmp_ps(sums, sums, _CMP_UNORD_Q));
  }
};

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static constexpr size_t kStepBytes = 2 * kVectorBytes;
  static constexpr bool kPrefetch = false;
  static Floats Load(const unsigned char* from) {
    return {_mm256_castsi256_ps(LoadVector(from)),
            _mm256_castsi256_ps(LoadVector(from + kVectorBytes))};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  static Floats Round(Floats sums) { return sums; }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    StoreVector(to, _mm256_castps_si256(sums.first));
    StoreVector(to + kVectorBytes, _mm256_castps_si256(sums.second));
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = false;
  static __m256d Load(const unsigned char* from) { return _mm256_castsi256_pd(LoadVector(from)); }
  static __m256d Add(__m256d a, __m256d b) { return _mm256_add_pd(a, b); }
  static __m256d Round(__m256d sums) { return sums; }
  static void Store(unsigned char* to, __m256d sums) {
    const __m256d nan = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000));
    const __m256d is_nan = _mm256_cmp_pd(sums, sums, _CMP_UNORD_Q);
    StoreVector(to, _mm256_castpd_si256(_mm256_blendv_pd(sums, nan, is_nan)));
  }
};

// Widened from memory, not from a register, and stored by halves: that saves the shuffles, and took
// half the time in a cache (Zen 3).
struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = true;
  static Floats Load(const unsigned char* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(HalfVector(from, 0))),
            _mm256_cvtph_ps(_mm_loadu_si128(HalfVector(from, 1)))};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  static Floats Round(Floats sums) {
    return {_mm256_cvtph_ps(Narrow(sums.first)), _mm256_cvtph_ps(Narrow(sums.second))};
  }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), Narrow(sums.first));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to) + 1, Narrow(sums.second));
  }
  static const __m128i_u* HalfVector(const unsigned char* from, size_t index) {
    return reinterpret_cast<const __m128i_u*>(from) + index;
  }
  static __m128i Narrow(__m256 sums) { return _mm256_cvtps_ph(sums, _MM_FROUND_TO_NEAREST_INT); }
};

// Elements at even and at odd places are widened where they stand, which saves all shuffles.
struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = true;
  static Floats Load(const unsigned char* from) {
    __m256i both = LoadVector(from);
    // Empty, but makes the compiler load each vector once, not once for each use: where arrays are
    // not aligned, half of the loads are two.
    asm("" : "+x"(both));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), Upper(both)};
  }
  static Floats Add(Floats a, Floats b) { return Floats::Add(a, b); }
  // A NaN stays a NaN: the hardware's NaN for operands without a lower half has no lower half
  // either.
  static Floats Round(Floats sums) {
    return {Upper(Rounded(sums.first)), Upper(Rounded(sums.second))};
  }
  static void Store(unsigned char* to, Floats sums) {
    sums = sums.WithOneNan();
    const __m256i even = _mm256_srli_epi32(Rounded(sums.first), 16);
    StoreVector(to, _mm256_blend_epi16(even, Rounded(sums.second), 0xaa));
  }
  static __m256 Upper(__m256i vector) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return _mm256_castsi256_ps(_mm256_and_si256(vector, mask));
  }
  // The rounded sum in the upper half of each 32 bits; the lower half is of no use.
  static __m256i Rounded(__m256 sums) {
    const __m256i bits = _mm256_castps_si256(sums);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
  }
};

struct Integer {
  static constexpr size_t kStepBytes = kVectorBytes;
  static constexpr bool kPrefetch = false;
  static __m256i Load(const unsigned char* from) { return LoadVector(from); }
  static __m256i Round(__m256i sums) { return sums; }
  static void Store(unsigned char* to, __m256i sums) { StoreVector(to, sums); }
};

struct Int8 : Integer {
  static constexpr size_t kElementBytes = 1;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
};

struct Int32 : Integer {
  static constexpr size_t kElementBytes = 4;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
};

struct Int64 : Integer {
  static constexpr size_t kElementBytes = 8;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }
};

// Position is the DType code; 7 to 11 are no DType that we sum.
constexpr Kernels kKernels = {
    .name = "avx2",
    .sum = {Sum<Float32>, Sum<Float64>, Sum<Float16>, Sum<Int8>, Sum<Int32>, Sum<Int8>, Sum<Int64>,
            nullptr, nullptr, nullptr, nullptr, nullptr, Sum<Bfloat16>},
};

}  // namespace

const Kernels& Avx2Kernels() { return kKernels; }

}  // namespace bs::reduce
