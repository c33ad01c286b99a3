// A codec of the tests for whole numbers of 16 bits, gradients and sums: two bytes an element.
//
// To each number it adds one that depends on key, round, element and coder, modulo 2^16.  So codes
// that are made in another place, or taken for another's, stand for other numbers.
#pragma once

#include <cstdint>
#include <cstring>

#include "codec/codec.h"
#include "codec/lossy_row.h"

namespace bs::codec::testing {

inline constexpr uint32_t kWholeId = 79;
inline constexpr uint64_t kWholeUnit = 16;

inline Coding WholeCoding(SumsTravel sums = SumsTravel::kSame) {
  return {.codec = kWholeId, .sums = sums};
}

inline uint16_t WholeOffset(const Place& place, size_t i) {
  uint64_t mixed = (place.key * 31 + place.round) * 1000003 + place.first_element + i;
  mixed = mixed * 1000003 + place.rank;
  return static_cast<uint16_t>(mixed * 0x9e3779b97f4a7c15ULL >> 40U);
}

inline void EncodeWhole(const CodecParameters& /*parameters*/, const Place& place, const void* in,
                        float* /*residual*/, void* codes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(in) + i * sizeof(value), sizeof(value));
    const auto code = static_cast<uint16_t>(static_cast<int16_t>(value) + WholeOffset(place, i));
    std::memcpy(static_cast<char*>(codes) + i * sizeof(code), &code, sizeof(code));
  }
}

template <bool kAdd>
void PutWhole(const CodecParameters& /*parameters*/, const Place& place, const void* codes,
              void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, static_cast<const char*>(codes) + i * sizeof(code), sizeof(code));
    float value = 0;
    char* const at = static_cast<char*>(target) + i * sizeof(value);
    if (kAdd) std::memcpy(&value, at, sizeof(value));
    value += static_cast<int16_t>(code - WholeOffset(place, i));
    std::memcpy(at, &value, sizeof(value));
  }
}

inline Codec WholeCodec() {
  Codec codec = RowOfUnits(kWholeId, "whole", kWholeUnit);
  codec.encoded_bytes = [](const CodecParameters&, uint64_t count) { return 2 * count; };
  codec.encode = EncodeWhole;
  codec.add = PutWhole<true>;
  codec.decode = PutWhole<false>;
  return codec;
}

}  // namespace bs::codec::testing
