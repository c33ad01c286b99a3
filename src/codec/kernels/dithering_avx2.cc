// Dithering with AVX2: dithering_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/kernels/dithering_kernels.h"

namespace bs::codec {
namespace {

constexpr int kNearer = 0xd8;  // of 64-bit quarters: first, third, second, fourth

__m256i Load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i_u*>(from)); }

__m256 Floats(const unsigned char* from) { return _mm256_castsi256_ps(Load(from)); }

__m256i SignBits() { return _mm256_set1_epi32(INT32_MIN); }

__m256 Coded(const DitherInput& input, size_t at) {
  const __m256 values = Floats(input.in + at * sizeof(float));
  if (input.residual == nullptr) return values;
  const __m256 kept =
      _mm256_mul_ps(_mm256_set1_ps(input.ratio), _mm256_loadu_ps(input.residual + at));
  return _mm256_add_ps(values, kept);
}

uint32_t Largest(const DitherInput& input, size_t blocks) {
  __m256i largest = _mm256_setzero_si256();
  for (size_t at = 0; at < kDitherBlock * blocks; at += 8) {
    const __m256i sizes = _mm256_andnot_si256(SignBits(), _mm256_castps_si256(Coded(input, at)));
    largest = _mm256_max_epu32(largest, sizes);
  }
  __m128i most =
      _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  most = _mm_max_epu32(most, _mm_srli_si128(most, 8));
  most = _mm_max_epu32(most, _mm_srli_si128(most, 4));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(most));
}

void AddSquares(const DitherInput& input, size_t blocks, double* lanes) {
  __m256d low = _mm256_loadu_pd(lanes);
  __m256d high = _mm256_loadu_pd(lanes + 4);
  for (size_t at = 0; at < kDitherBlock * blocks; at += 8) {
    const __m256 values = Coded(input, at);
    const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(values));
    const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
    low = _mm256_add_pd(low, _mm256_mul_pd(first, first));
    high = _mm256_add_pd(high, _mm256_mul_pd(second, second));
  }
  _mm256_storeu_pd(lanes, low);
  _mm256_storeu_pd(lanes + 4, high);
}

struct Random {
  __m256i first;
  __m256i second;
};

// Sixteen numbers of 16 bits.
__m256i Draw(Random* random) {
  const __m256i word = _mm256_add_epi64(random->first, random->second);
  const __m256i mixed = _mm256_xor_si256(random->first, _mm256_slli_epi64(random->first, 23));
  const __m256i kept = _mm256_xor_si256(random->second, _mm256_srli_epi64(random->second, 26));
  random->first = random->second;
  random->second = _mm256_xor_si256(_mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 17)), kept);
  return word;
}

// All bits of an element that gets the upper level, which has `share` of the gap, in 2^-16.
__m256i GoUp(__m256 share, __m256i drawn) {
  const __m256 bound = _mm256_add_ps(_mm256_cvtepi32_ps(drawn), _mm256_set1_ps(0.5F));
  return _mm256_castps_si256(_mm256_cmp_ps(share, bound, _CMP_GT_OQ));
}

__m256i LinearLevels(const DitherLevels& levels, __m256 share, __m256i drawn) {
  const __m256 scaled = _mm256_mul_ps(share, _mm256_set1_ps(static_cast<float>(levels.count)));
  const __m256i below = _mm256_cvttps_epi32(scaled);
  const __m256 gap = _mm256_sub_ps(scaled, _mm256_cvtepi32_ps(below));
  return _mm256_sub_epi32(below, GoUp(_mm256_mul_ps(gap, _mm256_set1_ps(65536)), drawn));
}

__m256i NaturalLevels(const DitherLevels& levels, __m256 share, __m256i drawn) {
  const __m256i bits = _mm256_castps_si256(share);
  const __m256i below = _mm256_add_epi32(_mm256_srli_epi32(bits, 23),
                                         _mm256_set1_epi32(static_cast<int>(levels.count) - 127));
  const __m256i fraction = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff));
  const __m256i bound = _mm256_or_si256(_mm256_slli_epi32(drawn, 7), _mm256_set1_epi32(64));
  const __m256i level = _mm256_sub_epi32(below, _mm256_cmpgt_epi32(fraction, bound));
  const float scale = static_cast<float>(1U << (levels.count - 1)) * 65536.0F;
  const __m256i least =
      _mm256_srli_epi32(GoUp(_mm256_mul_ps(share, _mm256_set1_ps(scale)), drawn), 31);
  const __m256i is_least = _mm256_cmpgt_epi32(_mm256_set1_epi32(1), below);
  return _mm256_blendv_epi8(level, least, is_least);
}

// Without their signs.
template <bool kNatural>
__m256 Sizes(const DitherLevels& levels, __m256i level) {
  __m256 share =
      _mm256_div_ps(_mm256_cvtepi32_ps(level), _mm256_set1_ps(static_cast<float>(levels.count)));
  if (kNatural) {
    const __m256i exponent =
        _mm256_add_epi32(level, _mm256_set1_epi32(127 - static_cast<int>(levels.count)));
    const __m256i is_more = _mm256_cmpgt_epi32(level, _mm256_setzero_si256());
    share = _mm256_castsi256_ps(_mm256_and_si256(is_more, _mm256_slli_epi32(exponent, 23)));
  }
  return _mm256_mul_ps(share, _mm256_set1_ps(levels.norm));
}

// With the signs of the codes, which are in the lowest bits of `coded`.
template <bool kNatural>
__m256 ValuesOf(const DitherLevels& levels, __m256i coded) {
  const __m256i most = _mm256_set1_epi32((1 << (levels.width - 1)) - 1);
  const __m128i up = _mm_cvtsi32_si128(static_cast<int>(32 - levels.width));
  const __m256i sign = _mm256_and_si256(_mm256_sll_epi32(coded, up), SignBits());
  const __m256 sizes = Sizes<kNatural>(levels, _mm256_and_si256(coded, most));
  return _mm256_or_ps(sizes, _mm256_castsi256_ps(sign));
}

__m256i Lanes() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }

// The sizes of codes of up to four bits by the lowest three bits of a lane.  Above the level may be
// the sign, and another code.
template <bool kNatural, uint32_t kWidth>
__m256 TableOf(const DitherLevels& levels) {
  const __m256i level = _mm256_and_si256(Lanes(), _mm256_set1_epi32((1 << (kWidth - 1)) - 1));
  return Sizes<kNatural>(levels, level);
}

template <bool kNatural, uint32_t kWidth>
__m256 ValuesBy(__m256 table, const DitherLevels& levels, __m256i coded) {
  if (kWidth > 4) return ValuesOf<kNatural>(levels, coded);
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(coded, 32 - kWidth), SignBits());
  return _mm256_or_ps(_mm256_permutevar8x32_ps(table, coded), _mm256_castsi256_ps(sign));
}

// Sixteen codes of 16 bits, in the bits of a width.  A width known to the compiler needs no call of
// memcpy.
template <uint32_t kWidth>
void Pack(__m256i codes, unsigned char* to) {
  if (kWidth == 16) return _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), codes);
  __m128i packed =
      _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
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

// Eight codes in the lowest bits of their lanes.  Above those of up to four bits come others.
template <uint32_t kWidth>
__m256i UnpackEight(const unsigned char* from) {
  const auto* const bytes = reinterpret_cast<const __m128i_u*>(from);
  if (kWidth == 16) return _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes));
  if (kWidth == 8) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes));
  int32_t word = 0;
  std::memcpy(&word, from, kWidth <= 4 ? kWidth : 0);
  const __m256i shifts = _mm256_mullo_epi32(Lanes(), _mm256_set1_epi32(kWidth));
  return _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
}

// The codes of eight elements, which leave their residual.
template <bool kNatural, uint32_t kWidth>
__m256i CodeEight(const DitherInput& input, const DitherLevels& levels, __m256 table, size_t at,
                  __m128i drawn16) {
  const __m256 values = Coded(input, at);
  const __m256 sizes = _mm256_andnot_ps(_mm256_castsi256_ps(SignBits()), values);
  const __m256 share = _mm256_div_ps(sizes, _mm256_set1_ps(levels.norm > 0 ? levels.norm : 1.0F));
  const __m256i drawn = _mm256_cvtepu16_epi32(drawn16);
  const __m256i level =
      kNatural ? NaturalLevels(levels, share, drawn) : LinearLevels(levels, share, drawn);
  const __m256i is_more = _mm256_cmpgt_epi32(level, _mm256_setzero_si256());
  const __m256i sign =
      _mm256_and_si256(_mm256_and_si256(_mm256_castps_si256(values), SignBits()), is_more);
  const __m256i coded = _mm256_or_si256(level, _mm256_srli_epi32(sign, 32 - kWidth));
  if (input.residual != nullptr) {
    const __m256 size =
        kWidth <= 4 ? _mm256_permutevar8x32_ps(table, level) : Sizes<kNatural>(levels, level);
    const __m256 sent = _mm256_or_ps(size, _mm256_castsi256_ps(sign));
    _mm256_storeu_ps(input.residual + at, _mm256_sub_ps(values, sent));
  }
  return coded;
}

template <bool kNatural, uint32_t kWidth>
void CodeAs(const DitherInput& input, const DitherLevels& levels, size_t blocks,
            DitherRandom* random, unsigned char* codes) {
  Random state = {.first = Load(random->first), .second = Load(random->second)};
  const __m256 table = kWidth <= 4 ? TableOf<kNatural, kWidth>(levels) : _mm256_setzero_ps();
  for (size_t at = 0; at < kDitherBlock * blocks; at += kDitherBlock) {
    const __m256i drawn = Draw(&state);
    const __m256i low =
        CodeEight<kNatural, kWidth>(input, levels, table, at, _mm256_castsi256_si128(drawn));
    const __m256i high = CodeEight<kNatural, kWidth>(input, levels, table, at + 8,
                                                     _mm256_extracti128_si256(drawn, 1));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), kNearer);
    Pack<kWidth>(both, codes);
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
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  const __m256 table = kWidth <= 4 ? TableOf<kNatural, kWidth>(levels) : _mm256_setzero_ps();
  for (size_t eight = 0; eight < 2 * blocks; ++eight, target += sizeof(__m256)) {
    const __m256i coded = UnpackEight<kWidth>(codes);
    codes += kWidth;
    __m256 values = ValuesBy<kNatural, kWidth>(table, levels, coded);
    if (kAdd) values = _mm256_add_ps(Floats(target), values);
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(target),
                        _mm256_castps_si256(_mm256_blendv_ps(values, nan, is_nan)));
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

constexpr DitherKernels kKernels = {.name = "avx2",
                                    .largest = Largest,
                                    .add_squares = AddSquares,
                                    .code = Code,
                                    .put = PutBlocks<false>,
                                    .add = PutBlocks<true>};

}  // namespace

const DitherKernels& Avx2Dithering() { return kKernels; }

}  // namespace bs::codec
