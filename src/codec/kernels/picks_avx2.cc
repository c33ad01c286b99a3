// The loops of topk and randomk with AVX2: picks_kernels.h says what this file must not contain.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/kernels/picks_kernels.h"

namespace bs::codec {
namespace {

constexpr size_t kEight = 8;
constexpr int kInfiniteBits8 = 0x7f800000;

size_t EightAtMost(size_t count) { return count < kEight ? count : kEight; }

// All bits of the first `count` of eight lanes.
__m256i FirstLanes(size_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}

// Eight elements, or `count` of them and then 0.
__m256 CodedEight(const PickInput& input, size_t at, size_t count) {
  const __m256i lanes = FirstLanes(count);
  const auto* const in = reinterpret_cast<const float*>(input.in + at * sizeof(float));
  const __m256 values = _mm256_maskload_ps(in, lanes);
  if (input.residual == nullptr) return values;
  const __m256 residual = _mm256_maskload_ps(input.residual + at, lanes);
  return _mm256_add_ps(values, _mm256_mul_ps(_mm256_set1_ps(input.ratio), residual));
}

__m256i MagnitudesOfEight(const PickInput& input, size_t at, size_t count) {
  const __m256i bits = _mm256_castps_si256(CodedEight(input, at, count));
  return _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX));
}

unsigned BitsOfEight(__m256i lanes, size_t count) {
  const auto bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
  return bits & ((1U << count) - 1U);
}

bool AreFinite8(const PickInput& input, size_t count) {
  __m256i largest = _mm256_setzero_si256();
  for (size_t at = 0; at < count; at += kEight) {
    largest = _mm256_max_epi32(largest, MagnitudesOfEight(input, at, EightAtMost(count - at)));
  }
  const __m256i is_wrong = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(kInfiniteBits8 - 1));
  return BitsOfEight(is_wrong, kEight) == 0;
}

void CountDigits8(const PickInput& input, size_t count, const PickDigit& digit, uint32_t* buckets) {
  const __m128i above = _mm_cvtsi32_si128(static_cast<int>(digit.shift + digit.bits));
  const __m128i below = _mm_cvtsi32_si128(static_cast<int>(digit.shift));
  const __m256i prefix = _mm256_set1_epi32(static_cast<int>(digit.prefix));
  const __m256i mask = _mm256_set1_epi32(static_cast<int>((1U << digit.bits) - 1U));
  for (size_t at = 0; at < count; at += kEight) {
    const size_t here = EightAtMost(count - at);
    const __m256i magnitudes = MagnitudesOfEight(input, at, here);
    const __m256i has = _mm256_cmpeq_epi32(_mm256_srl_epi32(magnitudes, above), prefix);
    alignas(__m256i) uint32_t digits[kEight];
    _mm256_store_si256(reinterpret_cast<__m256i*>(digits),
                       _mm256_and_si256(_mm256_srl_epi32(magnitudes, below), mask));
    for (unsigned bits = BitsOfEight(has, here); bits != 0; bits &= bits - 1) {
      ++buckets[digits[__builtin_ctz(bits)]];
    }
  }
}

// By the bits of eight lanes: the lanes whose bits are set, ascending, a byte each.
struct LanesOfBits {
  uint64_t of[1U << kEight];
};

constexpr LanesOfBits MakeLanesOfBits() {
  LanesOfBits lanes{};
  for (unsigned bits = 0; bits < 1U << kEight; ++bits) {
    unsigned shift = 0;
    for (uint64_t lane = 0; lane < kEight; ++lane) {
      if ((bits >> lane & 1U) == 0) continue;
      lanes.of[bits] |= lane << shift;
      shift += 8;
    }
  }
  return lanes;
}
constexpr LanesOfBits kLanesOfBits = MakeLanesOfBits();

// Without a branch, which the CPU could not predict.
size_t Find8(const PickInput& input, const PickRange& range, uint32_t least,
             const PickLists& found) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(least) - 1);
  const size_t end = range.first + range.count;
  size_t count = 0;
  for (size_t at = range.first; at < end; at += kEight) {
    const size_t here = EightAtMost(end - at);
    const __m256 coded = CodedEight(input, at, here);
    const __m256i magnitudes =
        _mm256_and_si256(_mm256_castps_si256(coded), _mm256_set1_epi32(INT32_MAX));
    const unsigned hits = BitsOfEight(_mm256_cmpgt_epi32(magnitudes, below), here);
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(kLanesOfBits.of[hits]));
    const __m256i lanes = _mm256_cvtepu8_epi32(bytes);
    const __m256i indices = _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int>(at)));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(found.indices + count), indices);
    _mm256_storeu_ps(found.values + count, _mm256_permutevar8x32_ps(coded, lanes));
    count += static_cast<size_t>(__builtin_popcount(hits));
  }
  return count;
}

// The lowest `most` of the bits that are set.
unsigned LowestBits8(unsigned bits, size_t most) {
  unsigned taken = 0;
  for (; bits != 0 && most > 0; --most) {
    taken |= bits & (0U - bits);
    bits &= bits - 1;
  }
  return taken;
}

void Pick8(const PickInput& input, size_t count, const PickCut& cut, unsigned char* indices) {
  const __m256i least = _mm256_set1_epi32(static_cast<int>(cut.least));
  size_t ties = cut.ties;
  for (size_t at = 0; at < count; at += kEight) {
    const size_t here = EightAtMost(count - at);
    const __m256i magnitudes = MagnitudesOfEight(input, at, here);
    unsigned picks = BitsOfEight(_mm256_cmpgt_epi32(magnitudes, least), here);
    if (ties > 0) {
      const unsigned equal = BitsOfEight(_mm256_cmpeq_epi32(magnitudes, least), here);
      const unsigned taken = LowestBits8(equal, ties);
      ties -= static_cast<size_t>(__builtin_popcount(taken));
      picks |= taken;
    }
    for (; picks != 0; picks &= picks - 1) {
      const auto index = static_cast<uint16_t>(at + static_cast<size_t>(__builtin_ctz(picks)));
      std::memcpy(indices, &index, sizeof(index));
      indices += sizeof(index);
    }
  }
}

void Fold8(const PickInput& input, size_t count) {
  for (size_t at = 0; at < count; at += kEight) {
    const size_t here = EightAtMost(count - at);
    _mm256_maskstore_ps(input.residual + at, FirstLanes(here), CodedEight(input, at, here));
  }
}

constexpr PickKernels kPicks8 = {.name = "avx2",
                                 .are_finite = AreFinite8,
                                 .count_digits = CountDigits8,
                                 .find = Find8,
                                 .pick = Pick8,
                                 .fold = Fold8};

}  // namespace

const PickKernels& Avx2Picks() { return kPicks8; }

}  // namespace bs::codec
