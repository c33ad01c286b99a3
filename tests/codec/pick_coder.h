// Codes of topk and randomk in tests.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"

namespace bs::codec::testing {

inline Result<Coding> ParsePicking(std::string_view name, const std::vector<Option>& options) {
  return Builtin().Parse(&name, options);
}

// A coder of a worker's gradients, or of sums.  Codes lie one byte off, as they may in a message.
class PickCoder {
 public:
  PickCoder(std::string_view name, const std::vector<Option>& options, size_t count)
      : coding(ParsePicking(name, options).value()),
        codec(Builtin().Get(coding)),
        residual(Builtin().KeepsResidual(coding) ? count : 0) {}

  std::vector<std::byte> Encode(const std::vector<float>& in) {
    std::vector<std::byte> room(1 + codec.encoded_bytes(coding.parameters, in.size()));
    codec.encode(coding.parameters, place, in.data(), residual.empty() ? nullptr : residual.data(),
                 room.data() + 1, in.size());
    return {room.begin() + 1, room.end()};
  }
  std::vector<float> Decode(const std::vector<std::byte>& codes, size_t count) const {
    std::vector<float> values(count, 99);
    codec.decode(coding.parameters, place, codes.data(), values.data(), count);
    return values;
  }
  std::vector<float> Add(const std::vector<std::byte>& codes, std::vector<float> sum) const {
    codec.add(coding.parameters, place, codes.data(), sum.data(), sum.size());
    return sum;
  }
  Status Check(const std::vector<std::byte>& codes, size_t count) const {
    return codec.check_codes(coding.parameters, codes, count);
  }

  Coding coding;
  const Codec& codec;
  Place place{};
  std::vector<float> residual;  // empty without `ef`
};

inline std::vector<uint32_t> BitsOfFloats(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

}  // namespace bs::codec::testing
