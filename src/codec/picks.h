// Picks: the common part of topk and randomk, whose codes hold some elements of each unit.
//
// A pick travels as float32, or with `fp16` as float16.  A float16 ends at 65,504, so a sum is
// coded as one of codec fp16: divided by the next power of two that is no less than the number of
// workers.  A pick beyond the range of its type travels as the end of the range, and the rest stays
// in the residual if there is one.  A unit is coded as "not finite", by picks that are all NaN, if
// one of its elements is not finite.  All its values are NaN then, and its residual is multiplied
// by the ratio only; a product that is not finite becomes 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "codec/codec.h"
#include "codec/kernels/picks_kernels.h"

namespace bs::codec {

// The parameters of both codecs.
struct Picks {
  bool halves = false;  // picks are float16
  uint32_t whole = 0;   // the user's k, if it is a whole number; descriptions alone use it
  uint64_t share = 0;   // of a unit's elements, times 2^32; at most 2^32
  uint64_t seed = 0;    // randomk's; 0: the job's number

  uint64_t value_bytes() const { return halves ? sizeof(uint16_t) : sizeof(float); }
  // The picks in a unit of `count` elements: at least one.
  uint64_t Of(uint64_t count) const;
};

// Any parameters: 0 for bytes that are none.
Picks PicksOf(const CodecParameters& parameters);
CodecParameters ParametersOf(const Picks& picks);

// The options k and fp16, and with `has_seed` seed.
Result<Picks> ParsePicks(std::string_view codec, std::span<const Option> options, bool has_seed);
// kInvalidArgument unless picks whose share a user gave as a fraction are smaller than what they
// stand for.  Those of a whole k depend on the tensor, and those of float16 on its type.
Status CheckShare(const Picks& picks, uint64_t bytes_a_pick);
Status CheckPicks(const CodecParameters& parameters);
// "topk with k 0.01, half values".
std::string DescribePicks(std::string_view codec, const Picks& picks);
// Bytes of the codes of `count` elements.
uint64_t PicksBytes(const Picks& picks, uint64_t bytes_a_pick, uint64_t count);

inline constexpr float kMostHalf = 65504;

// How a pick becomes bytes.
struct PickForm {
  bool halves = false;
  float factor = 1;   // of what is coded
  float divisor = 1;  // a power of two, of float16 alone

  size_t value_bytes() const { return halves ? sizeof(uint16_t) : sizeof(float); }
  // The largest value that travels.
  float most() const { return halves ? kMostHalf * divisor : std::numeric_limits<float>::max(); }
};

// That of elements at `place`, with factor 1.
PickForm FormOf(const Picks& picks, const Place& place);

// The values of `count` picks, at most kPickBlock, as bytes and back.
inline constexpr size_t kPickBlock = 256;
using PickBlock = std::array<float, kPickBlock>;
void WritePicks(const PickForm& form, const PickBlock& values, size_t count, unsigned char* to);
void ReadPicks(const PickForm& form, const unsigned char* from, size_t count, PickBlock* values);
// kInvalidArgument unless the values of a unit are all finite, or all NaN.
Status CheckPickValues(const PickForm& form, const unsigned char* values, size_t count);

// The fastest of picks_kernels.h.
const PickKernels& BestPicks();

// A unit that is coded.
struct PickUnit {
  PickInput input;
  size_t count;
  size_t picks;
};

// Values of a unit that is not finite, and its residual behind this round.
void GiveUpPicks(const PickUnit& unit, const PickForm& form, unsigned char* values);
// Fills `target` with NaN.
void PutNan(unsigned char* target, size_t count);
bool IsNanPick(const PickForm& form, const unsigned char* values);
inline float SumOfPick(float element, float value) {
  const float sum = element + value;
  // Whatever sign or payload the hardware gives it.
  return sum == sum ? sum : std::numeric_limits<float>::quiet_NaN();
}

// In what follows the member Next() of a `Cursor` returns the index of the next pick; copies of a
// cursor go on alone.

// An element with what the residual keeps of it.
inline float WithResidual(const PickInput& input, size_t index) {
  float value = 0;
  std::memcpy(&value, input.in + index * sizeof(float), sizeof(float));
  if (input.residual == nullptr) return value;
  const float kept = input.ratio * input.residual[index];
  return value + kept;
}

// Codes the picks.  REQUIRES: all elements are finite.
template <typename Cursor>
void EncodePicks(const PickUnit& unit, Cursor cursor, const PickForm& form, unsigned char* values) {
  const PickInput& input = unit.input;
  const float most = form.most();
  PickBlock block;
  Cursor again = cursor;
  for (size_t at = 0; at < unit.picks; at += kPickBlock) {
    const size_t count = std::min(kPickBlock, unit.picks - at);
    for (size_t i = 0; i < count; ++i) {
      block[i] = std::clamp(WithResidual(input, cursor.Next()) * form.factor, -most, most);
    }
    WritePicks(form, block, count, values + at * form.value_bytes());
  }
  if (input.residual == nullptr) return;
  BestPicks().fold(input, unit.count);
  for (size_t at = 0; at < unit.picks; at += kPickBlock) {
    const size_t count = std::min(kPickBlock, unit.picks - at);
    ReadPicks(form, values + at * form.value_bytes(), count, &block);
    for (size_t i = 0; i < count; ++i) input.residual[again.Next()] -= block[i];
  }
}

// Puts a unit's values, or adds them, to `count` elements.  A value -0 is 0: else the sign of a sum
// of such a value and an element that was not picked would depend on which of them came first.
template <bool kAdd, typename Cursor>
void PutPicks(Cursor cursor, size_t picks, const PickForm& form, const unsigned char* values,
              unsigned char* target, size_t count) {
  if (IsNanPick(form, values)) return PutNan(target, count);
  if constexpr (!kAdd) std::memset(target, 0, count * sizeof(float));
  PickBlock block;
  for (size_t at = 0; at < picks; at += kPickBlock) {
    const size_t in_block = std::min(kPickBlock, picks - at);
    ReadPicks(form, values + at * form.value_bytes(), in_block, &block);
    for (size_t i = 0; i < in_block; ++i) {
      unsigned char* const element = target + cursor.Next() * sizeof(float);
      float sum = 0;
      if constexpr (kAdd) std::memcpy(&sum, element, sizeof(float));
      const float value = SumOfPick(sum, block[i]);
      std::memcpy(element, &value, sizeof(float));
    }
  }
}

}  // namespace bs::codec
