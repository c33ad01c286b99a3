// Coding: the codec of a push's payload, its parameters, and how the sum travels back.
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

// How the sum of coded gradients travels back.  Numbers on the wire.
enum class SumsTravel : uint8_t {
  kPlain = 0,  // as float32
  kSame = 1,   // in the codec of the gradients
  kBf16 = 2,
};

// Error feedback: the coder of gradients, or of sums, keeps the part that codes cannot express.
// Numbers on the wire.
enum class Feedback : uint8_t {
  kNone = 0,       // nothing, unless the codec itself keeps it
  kVanilla = 1,    // the coder keeps it for the next round
  kCorrected = 2,  // the same, times the ratio of the learning rates (feedback.h)
  kSparse = 3,     // as kCorrected, of codecs whose sums lose nothing
};

struct Coding {
  uint32_t codec = 0;  // number of the codec on the wire; 0: none
  CodecParameters parameters{};
  SumsTravel sums = SumsTravel::kPlain;
  Feedback feedback = Feedback::kNone;
  // Only later rounds are coded: this payload, and its sum, are as they lie in memory.
  bool later = false;

  // The bytes travel as they lie in memory.
  bool plain() const { return codec == 0 || later; }
  bool operator==(const Coding&) const = default;
};

}  // namespace bs
