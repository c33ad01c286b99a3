// A codec of the tests that is lossy by the unit: of 32 elements each gets the mean of itself and
// its mirror in the unit.  So whoever cuts keys elsewhere gets other sums.
// Sums travel in it too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/codec.h"
#include "codec/lossy_row.h"

namespace bs::codec::testing {

inline constexpr uint32_t kMirrorId = 78;
inline constexpr uint64_t kMirrorUnit = 32;
inline constexpr uint64_t kMirrorBytes = 64;  // of a unit

inline Coding MirrorCoding(SumsTravel sums = SumsTravel::kSame) {
  return {.codec = kMirrorId, .sums = sums};
}

inline uint64_t MirrorUnits(uint64_t count) { return (count + kMirrorUnit - 1) / kMirrorUnit; }

inline float MirrorAt(const void* array, size_t index) {
  float value = 0;
  std::memcpy(&value, static_cast<const char*>(array) + index * sizeof(float), sizeof(float));
  return value;
}

inline void EncodeMirror(const CodecParameters& /*parameters*/, const Place& /*place*/,
                         const void* in, float* /*residual*/, void* codes, size_t count) {
  for (size_t unit = 0; unit < MirrorUnits(count); ++unit) {
    const size_t first = unit * kMirrorUnit;
    const size_t last = std::min<size_t>(first + kMirrorUnit, count) - 1;
    float means[kMirrorUnit / 2] = {};
    for (size_t i = 0; first + i <= last - i && i < kMirrorUnit / 2; ++i) {
      means[i] = (MirrorAt(in, first + i) + MirrorAt(in, last - i)) / 2;
    }
    std::memcpy(static_cast<char*>(codes) + unit * kMirrorBytes, means, sizeof(means));
  }
}

template <bool kAdd>
void PutMirror(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* codes,
               void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i / kMirrorUnit * kMirrorUnit;
    const size_t last = std::min<size_t>(first + kMirrorUnit, count) - 1;
    const size_t place = std::min(i - first, last - i);
    float value = MirrorAt(codes, first / kMirrorUnit * kMirrorUnit / 2 + place);
    if (kAdd) value += MirrorAt(target, i);
    std::memcpy(static_cast<char*>(target) + i * sizeof(float), &value, sizeof(float));
  }
}

inline Codec MirrorCodec() {
  Codec codec = RowOfUnits(kMirrorId, "mirror", kMirrorUnit);
  codec.encoded_bytes = [](const CodecParameters&, uint64_t count) {
    return MirrorUnits(count) * kMirrorBytes;
  };
  codec.encode = EncodeMirror;
  codec.add = PutMirror<true>;
  codec.decode = PutMirror<false>;
  return codec;
}

}  // namespace bs::codec::testing
