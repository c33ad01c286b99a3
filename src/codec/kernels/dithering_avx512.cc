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

// Sixteen codes, in the bits of a width.
void Pack(__m512i codes, uint32_t width, unsigned char* to) {
  if (width == 16) {
    return _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_cvtepi32_epi16(codes));
  }
  __m128i packed = _mm512_cvtepi32_epi8(codes);
  if (width == 8) return _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), packed);
  // From two neighbours: the lower, and the upper shifted by the width.
  const short pairs = width == 4 ? 0x1001 : 0x0401;
  packed = _mm_maddubs_epi16(packed, _mm_set1_epi16(pairs));
  if (width == 2) {
    packed = _mm_madd_epi16(packed, _mm_set1_epi32(0x00100001));
    packed = _mm_packus_epi32(packed, packed);
  }
  packed = _mm_packus_epi16(packed, packed);
  const int64_t bytes = _mm_cvtsi128_si64(packed);
  std::memcpy(to, &bytes, size_t{2} * width);
}

__m512i Unpack(const unsigned char* from, uint32_t width) {
  if (width == 16) return _mm512_cvtepu16_epi32(Load(from));
  if (width == 8) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
  }
  int64_t bytes = 0;
  std::memcpy(&bytes, from, size_t{2} * width);
  __m128i codes = _mm_cvtsi64_si128(bytes);
  const __m128i nibble = _mm_set1_epi8(0x0f);
  codes = _mm_unpacklo_epi8(_mm_and_si128(codes, nibble),
                            _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
  if (width == 2) {
    const __m128i pair = _mm_set1_epi8(3);
    codes = _mm_unpacklo_epi8(_mm_and_si128(codes, pair),
                              _mm_and_si128(_mm_srli_epi16(codes, 2), pair));
  }
  return _mm512_cvtepu8_epi32(codes);
}

template <bool kNatural>
void CodeAs(const DitherInput& input, const DitherLevels& levels, size_t blocks,
            DitherRandom* random, unsigned char* codes) {
  Random state = {.first = Load(random->first), .second = Load(random->second)};
  const __m512 divisor = _mm512_set1_ps(levels.norm > 0 ? levels.norm : 1.0F);
  const __m128i down = _mm_cvtsi32_si128(static_cast<int>(32 - levels.width));
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
    if (input.residual != nullptr) {
      const __m512 sent = _mm512_or_ps(Sizes<kNatural>(levels, level), _mm512_castsi512_ps(sign));
      _mm512_storeu_ps(input.residual + at, _mm512_sub_ps(values, sent));
    }
    Pack(_mm512_or_si512(level, _mm512_srl_epi32(sign, down)), levels.width, codes);
    codes += size_t{2} * levels.width;
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(random->first), state.first);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(random->second), state.second);
}

void Code(const DitherInput& input, const DitherLevels& levels, size_t blocks, DitherRandom* random,
          unsigned char* codes) {
  const auto code = levels.is_natural ? CodeAs<true> : CodeAs<false>;
  code(input, levels, blocks, random, codes);
}

template <bool kNatural, bool kAdd>
void PutAs(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
           unsigned char* target) {
  const __m512i most = _mm512_set1_epi32((1 << (levels.width - 1)) - 1);
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
  const __m128i up = _mm_cvtsi32_si128(static_cast<int>(32 - levels.width));
  for (size_t block = 0; block < blocks; ++block, target += sizeof(__m512)) {
    const __m512i coded = Unpack(codes, levels.width);
    codes += size_t{2} * levels.width;
    const __m512i sign = _mm512_and_si512(_mm512_sll_epi32(coded, up), SignBits());
    const __m512 sizes = Sizes<kNatural>(levels, _mm512_and_si512(coded, most));
    __m512 values = _mm512_or_ps(sizes, _mm512_castsi512_ps(sign));
    if (kAdd) values = _mm512_add_ps(_mm512_loadu_ps(target), values);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    _mm512_storeu_ps(target, _mm512_mask_mov_ps(values, is_nan, nan));
  }
}

template <bool kAdd>
void PutBlocks(const unsigned char* codes, const DitherLevels& levels, size_t blocks,
               unsigned char* target) {
  const auto put = levels.is_natural ? PutAs<true, kAdd> : PutAs<false, kAdd>;
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
