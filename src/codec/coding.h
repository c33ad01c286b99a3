// Coding: the codec of a push's payload, and its parameters.
//
// A value.  Only the codec knows the meaning of its parameters (src/codec/codec.h); all other code
// passes them on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bs {

// Parameters of a codec as bytes; equal parameters have equal bytes.
class CodecParameters {
 public:
  static constexpr size_t kMostBytes = 24;

  CodecParameters() = default;
  // REQUIRES: at most kMostBytes.
  explicit CodecParameters(std::span<const std::byte> bytes)
      : size_(static_cast<uint8_t>(bytes.size())) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }
  std::span<const std::byte> bytes() const { return {bytes_.data(), size_}; }
  bool operator==(const CodecParameters&) const = default;

 private:
  std::array<std::byte, kMostBytes> bytes_{};
  uint8_t size_ = 0;
};

struct Coding {
  uint32_t codec = 0;  // number of the codec on the wire; 0: the bytes as they lie in memory
  CodecParameters parameters{};

  bool plain() const { return codec == 0; }
  bool operator==(const Coding&) const = default;
};

}  // namespace bs
