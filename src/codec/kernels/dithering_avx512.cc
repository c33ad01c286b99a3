// Dithering with AVX-512: dithering_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/kernels/dithering_kernels.h"

namespace bs::codec {
namespace {

__m512i SignBits() { return _mm512_set1_epi32(INT32_MIN); }

__m512 Coded(const DitherInput& input, size_t at) {
  const __m512 values = _mm512_loadu_ps(input.in + at * sizeof(float));
  if (input.residual == nullptr) return values;
  const __m512 kept =
      _mm512_mul_ps(_mm512_set1_ps(input.ratio), _mm512_loadu_ps(input.residual + at));
  return _mm512_add_ps(values, kept);
}

uint32_t Largest(const DitherInput& input, size_t blocks) {
  __m512i largest = _mm512_setzero_si512();
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    const __m512i bits = _mm512_castps_si512(Coded(input, at));
    largest = _mm512_max_epu32(largest, _mm512_andnot_si512(SignBits(), bits));
  }
  return _mm512_reduce_max_epu32(largest);
}

// A lane gets its two elements in their order.
void AddSquares(const DitherInput& input, size_t blocks, double* lanes) {
  __m512d sums = _mm512_loadu_pd(lanes);
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    const __m512 values = Coded(input, at);
    const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(values));
    const __m512d second = _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1));
    sums = _mm512_add_pd(sums, _mm512_mul_pd(first, first));
    sums = _mm512_add_pd(sums, _mm512_mul_pd(second, second));
  }
  _mm512_storeu_pd(lanes, sums);
}

__m256i Load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i_u*>(from)); }

struct Random {
  __m256i first;
  __m256i second;
};

// Sixteen numbers below 65,536.
__m512i Draw(Random* random) {
  const __m256i word = _mm256_add_epi64(random->first, random->second);
  const __m256i mixed = _mm256_xor_si256(random->first, _mm256_slli_epi64(random->first, 23));
  const __m256i kept = _mm256_xor_si256(random->second, _mm256_srli_epi64(random->second, 26));
  random->first = random->second;
  random->second = _mm256_xor_si256(_mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 17)), kept);
  return _mm512_cvtepu16_epi32(word);
}

// The elements that get the upper level, which has `share` of the gap, in 2^-16.
__mmask16 GoUp(__m512 share, __m512i drawn) {
  const __m512 bound = _mm512_add_ps(_mm512_cvtepi32_ps(drawn), _mm512_set1_ps(0.5F));
  return _mm512_cmp_ps_mask(share, bound, _CMP_GT_OQ);
}

__m512i OneMore(__m512i below, __mmask16 of) {
  return _mm512_mask_add_epi32(below, of, below, _mm512_set1_epi32(1));
}

__m512i LinearLevels(const DitherLevels& levels, __m512 share, __m512i drawn) {
  const __m512 scaled = _mm512_mul_ps(share, _mm512_set1_ps(static_cast<float>(levels.count)));
  const __m512i below = _mm512_cvttps_epi32(scaled);
  const __m512 gap = _mm512_sub_ps(scaled, _mm512_cvtepi32_ps(below));
  return OneMore(below, GoUp(_mm512_mul_ps(gap, _mm512_set1_ps(65536)), drawn));
}

__m512i NaturalLevels(const DitherLevels& levels, __m512 share, __m512i drawn) {
  const __m512i bits = _mm512_castps_si512(share);
  const __m512i below = _mm512_add_epi32(_mm512_srli_epi32(bits, 23),
                                         _mm512_set1_epi32(static_cast<int>(levels.count) - 127));
  const __m512i fraction = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff));
  const __m512i bound = _mm512_or_si512(_mm512_slli_epi32(drawn, 7), _mm512_set1_epi32(64));
  const __m512i level = OneMore(below, _mm512_cmpgt_epi32_mask(fraction, bound));
  const float scale = static_cast<float>(1U << (levels.count - 1)) * 65536.0F;
  const __mmask16 goes_up = GoUp(_mm512_mul_ps(share, _mm512_set1_ps(scale)), drawn);
  const __m512i least = _mm512_maskz_set1_epi32(goes_up, 1);
  const __mmask16 is_least = _mm512_cmplt_epi32_mask(below, _mm512_set1_epi32(1));
  return _mm512_mask_mov_epi32(level, is_least, least);
}

// Without their signs.
template <bool kNatural>
__m512 Sizes(const DitherLevels& levels, __m512i level) {
  __m512 share =
      _mm512_div_ps(_mm512_cvtepi32_ps(level), _mm512_set1_ps(static_cast<float>(levels.count)));
  if (kNatural) {
    const __m512i exponent =
        _mm512_add_epi32(level, _mm512_set1_epi32(127 - static_cast<int>(levels.count)));
    const __mmask16 is_more = _mm512_test_epi32_mask(level, level);
    share = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(is_more, exponent, 23));
  }
  return _mm512_mul_ps(share, _mm512_set1_ps(levels.norm));
}

// With the signs of the codes, which are in the lowest bits of `coded`.
template <bool kNatural>
__m512 ValuesOf(const DitherLevels& levels, __m512i coded) {
  const __m512i most = _mm512_set1_epi32((1 << (levels.width - 1)) - 1);
  const __m128i up = _mm_cvtsi32_si128(static_cast<int>(32 - levels.width));
  const __m512i sign = _mm512_and_si512(_mm512_sll_epi32(coded, up), SignBits());
  const __m512 sizes = Sizes<kNatural>(levels, _mm512_and_si512(coded, most));
  return _mm512_or_ps(sizes, _mm512_castsi512_ps(sign));
}

__m512i Lanes() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

// The values of codes of up to four bits by the lowest four bits of a lane, whatever is above the
// code.
template <bool kNatural, uint32_t kWidth>
__m512 TableOf(const DitherLevels& levels) {
  const __m512i codes = _mm512_and_si512(Lanes(), _mm512_set1_epi32((1 << kWidth) - 1));
  return ValuesOf<kNatural>(levels, codes);
}

// Sixteen codes, in the bits of a width.  A width known to the compiler needs no call of memcpy.
template <uint32_t kWidth>
void Pack(__m512i codes, unsigned char* to) {
  if (kWidth == 16) {
    return _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_cvtepi32_epi16(codes));
  }
  __m128i packed = _mm512_cvtepi32_epi8(codes);
  if (kWidth == 8) return _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), packed);
  // From two neighbours: the lower, and the upper shifted by the width.
  const short pairs = kWidth == 4 ? 0x1001 : 0x0401;
  packed = _mm_maddubs_epi16(packed, _mm_set1_epi16(pairs));
  if (kWidth == 2) {
    packed = _mm_madd_epi16(packed, _mm_set1_epi32(0x00100001));
    packed = _mm_packus_epi32(packed, packed);
  }
  packed = _mm_packus_epi16(packed, packed);
  const int64_t bytes = _mm_cvtsi128_si64(packed);
  std::memcpy(to, &bytes, kWidth == 4 ? sizeof(int64_t) : sizeof(int32_t));
}

// Sixteen codes in the lowest bits of their lanes.  Above those of up to four bits come others.
template <uint32_t kWidth>
__m512i Unpack(const unsigned char* from) {
  if (kWidth == 16) return _mm512_cvtepu16_epi32(Load(from));
  if (kWidth == 8) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
  }
  const __m512i bits = _mm512_mullo_epi32(Lanes(), _mm512_set1_epi32(kWidth));
  const __m512i shifts = _mm512_and_si512(bits, _mm512_set1_epi32(31));
  if (kWidth == 2) {
    int32_t word = 0;
    std::memcpy(&word, from, sizeof(word));
    return _mm512_srlv_epi32(_mm512_set1_epi32(word), shifts);
  }
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(from));
  const __m512i spread =
      _mm512_permutexvar_epi32(_mm512_srli_epi32(bits, 5), _mm512_castsi128_si512(words));
  return _mm512_srlv_epi32(spread, shifts);
}

template <bool kNatural, uint32_t kWidth>
void CodeAs(const DitherInput& input, const DitherLevels& levels, size_t blocks,
            DitherRandom* random, unsigned char* codes) {
  Random state = {.first = Load(random->first), .second = Load(random->second)};
  const __m512 divisor = _mm512_set1_ps(levels.norm > 0 ? levels.norm : 1.0F);
  const __m512 table = kWidth <= 4 ? TableOf<kNatural, kWidth>(levels) : _mm512_setzero_ps();
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    const __m512 values = Coded(input, at);
    const __m512i bits = _mm512_castps_si512(values);
    const __m512 sizes = _mm512_castsi512_ps(_mm512_andnot_si512(SignBits(), bits));
    const __m512 share = _mm512_div_ps(sizes, divisor);
    const __m512i drawn = Draw(&state);
    const __m512i level =
        kNatural ? NaturalLevels(levels, share, drawn) : LinearLevels(levels, share, drawn);
    const __m512i sign =
        _mm512_maskz_and_epi32(_mm512_test_epi32_mask(level, level), bits, SignBits());
    const __m512i coded = _mm512_or_si512(level, _mm512_srli_epi32(sign, 32 - kWidth));
    if (input.residual != nullptr) {
      const __m512 sent =
          kWidth <= 4 ? _mm512_permutexvar_ps(coded, table)
                      : _mm512_or_ps(Sizes<kNatural>(levels, level), _mm512_castsi512_ps(sign));
      _mm512_storeu_ps(input.residual + at, _mm512_sub_ps(values, sent));
    }
    Pack<kWidth>(coded, codes);
    codes += size_t{2} * kWidth;
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(random->first), state.first);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(random->second), state.second);
}

template <bool kNatural>
void CodeWith(const DitherInput& input, const DitherLevels& levels, size_t blocks,
              DitherRandom* random, unsigned char* codes) {
  switch (levels.width) {
    case 2:
      return CodeAs<kNatural, 2>(input, levels, blocks, random, codes);
    case 4:
      return CodeAs<kNatural, 4>(input, levels, blocks, random, codes);
    case 8:
      return CodeAs<kNatural, 8>(input, levels, blocks, random, codes);
    default:
      return CodeAs<kNatural, 16>(input, levels, blocks, random, codes);
  }
}

void Code(const DitherInput& input, const DitherLevels& levels, size_t blocks, DitherRandom* random,
          unsigned char* codes) {
  const auto code = levels.is_natural ? CodeWith<true> : CodeWith<false>;
  code(input, levels, blocks, random, codes);
}

template <bool kNatural, uint32_t kWidth, bool kAdd>
void PutAs(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
           unsigned char* target) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
  const __m512 table = kWidth <= 4 ? TableOf<kNatural, kWidth>(levels) : _mm512_setzero_ps();
  for (size_t block = 0; block < blocks; ++block, target += sizeof(__m512)) {
    const __m512i coded = Unpack<kWidth>(codes);
    codes += size_t{2} * kWidth;
    __m512 values =
        kWidth <= 4 ? _mm512_permutexvar_ps(coded, table) : ValuesOf<kNatural>(levels, coded);
    if (kAdd) values = _mm512_add_ps(_mm512_loadu_ps(target), values);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    _mm512_storeu_ps(target, _mm512_mask_mov_ps(values, is_nan, nan));
  }
}

template <bool kNatural, bool kAdd>
void PutWith(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
             unsigned char* target) {
  switch (levels.width) {
    case 2:
      return PutAs<kNatural, 2, kAdd>(codes, levels, blocks, target);
    case 4:
      return PutAs<kNatural, 4, kAdd>(codes, levels, blocks, target);
    case 8:
      return PutAs<kNatural, 8, kAdd>(codes, levels, blocks, target);
    default:
      return PutAs<kNatural, 16, kAdd>(codes, levels, blocks, target);
  }
}

template <bool kAdd>
void PutBlocks(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
               unsigned char* target) {
  const auto put = levels.is_natural ? PutWith<true, kAdd> : PutWith<false, kAdd>;
  put(codes, levels, blocks, target);
}

constexpr DitherKernels kKernels = {.name = "avx512",
                                    .largest = Largest,
                                    .add_squares = AddSquares,
                                    .code = Code,
                                    .put = PutBlocks<false>,
                                    .add = PutBlocks<true>};

}  // namespace

const DitherKernels& Avx512Dithering() { return kKernels; }

}  // namespace bs::codec
