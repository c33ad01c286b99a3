// Sums with AVX2 and F16C, 32 bytes at a time; see kernels_x86.h for what this file must not
// contain.
#include <immintrin.h>

#include "reduce/kernels_x86.h"

namespace bs::reduce {
namespace {

constexpr size_t kVectorBytes = sizeof(__m256i);

__m256i Load(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}

void Store(unsigned char* to, __m256i vector) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), vector);
}

// Each struct below adds the elements of one dtype in two vectors of raw bits.

struct Float32 {
  static constexpr size_t kElementBytes = 4;
  static __m256i Add(__m256i a, __m256i b) {
    return _mm256_castps_si256(AddFloats(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
  }
  // The one NaN of the specification for any NaN.
  static __m256 AddFloats(__m256 a, __m256 b) {
    const __m256 sum = _mm256_add_ps(a, b);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(sum, nan, _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
  }
};

struct Float64 {
  static constexpr size_t kElementBytes = 8;
  static __m256i Add(__m256i a, __m256i b) {
    const __m256d sum = _mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b));
    const __m256d nan = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000));
    const __m256d is_nan = _mm256_cmp_pd(sum, sum, _CMP_UNORD_Q);
    return _mm256_castpd_si256(_mm256_blendv_pd(sum, nan, is_nan));
  }
};

struct Float16 {
  static constexpr size_t kElementBytes = 2;
  static __m256i Add(__m256i a, __m256i b) {
    const __m128i low = AddHalves(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b));
    const __m128i high = AddHalves(_mm256_extracti128_si256(a, 1), _mm256_extracti128_si256(b, 1));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
  static __m128i AddHalves(__m128i a, __m128i b) {
    const __m256 sum = Float32::AddFloats(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
    return _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT);
  }
};

// Elements at even and at odd places are widened where they stand, which saves all shuffles.
struct Bfloat16 {
  static constexpr size_t kElementBytes = 2;
  static __m256i Add(__m256i a, __m256i b) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    const __m256i even = AddWidened(_mm256_slli_epi32(a, 16), _mm256_slli_epi32(b, 16));
    const __m256i odd = AddWidened(_mm256_and_si256(a, high), _mm256_and_si256(b, high));
    return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  }
  // The rounded sum in the upper half of each 32 bits; what is below it is of no use.
  static __m256i AddWidened(__m256i a, __m256i b) {
    const __m256i sum = Float32::Add(a, b);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(0x7fff)), is_odd);
  }
};

struct Int8 {
  static constexpr size_t kElementBytes = 1;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
};

struct Int32 {
  static constexpr size_t kElementBytes = 4;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
};

struct Int64 {
  static constexpr size_t kElementBytes = 8;
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }
};

// The last elements, fewer than a vector, go through a vector on the stack.
template <typename Element>
void SumTail(unsigned char* out, const unsigned char* a, const unsigned char* b,
             size_t size_bytes) {
  unsigned char x[kVectorBytes] = {};
  unsigned char y[kVectorBytes] = {};
  __builtin_memcpy(x, a, size_bytes);
  __builtin_memcpy(y, b, size_bytes);
  Store(x, Element::Add(Load(x), Load(y)));
  __builtin_memcpy(out, x, size_bytes);
}

template <typename Element>
void Sum2(void* target, const void* a, const void* b, size_t count) {
  auto* out = static_cast<unsigned char*>(target);
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  const size_t size_bytes = count * Element::kElementBytes;
  const size_t whole_bytes = size_bytes / kVectorBytes * kVectorBytes;
  for (size_t i = 0; i < whole_bytes; i += kVectorBytes) {
    Store(out + i, Element::Add(Load(x + i), Load(y + i)));
  }
  if (whole_bytes == size_bytes) return;
  SumTail<Element>(out + whole_bytes, x + whole_bytes, y + whole_bytes, size_bytes - whole_bytes);
}

template <typename Element>
void Sum(void* accumulator, const void* addend, size_t count) {
  Sum2<Element>(accumulator, accumulator, addend, count);
}

// Position is the DType code; 7 to 11 are no DType that we sum.
constexpr Kernels kKernels = {
    .name = "avx2",
    .sum = {Sum<Float32>, Sum<Float64>, Sum<Float16>, Sum<Int8>, Sum<Int32>, Sum<Int8>, Sum<Int64>,
            nullptr, nullptr, nullptr, nullptr, nullptr, Sum<Bfloat16>},
    .sum2 = {Sum2<Float32>, Sum2<Float64>, Sum2<Float16>, Sum2<Int8>, Sum2<Int32>, Sum2<Int8>,
             Sum2<Int64>, nullptr, nullptr, nullptr, nullptr, nullptr, Sum2<Bfloat16>},
};

}  // namespace

const Kernels& Avx2Kernels() { return kKernels; }

}  // namespace bs::reduce
