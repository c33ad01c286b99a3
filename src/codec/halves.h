// The common part of the rows of codecs of two bytes an element.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "codec/codec.h"
#include "codec/units.h"

namespace bs::codec {

inline constexpr uint64_t kHalfBytes = 2;

inline Status CheckNoParameters(const CodecParameters& parameters) {
  if (parameters.bytes().empty()) return Status::Ok();
  return Status::InvalidArgument("parameters of " + std::to_string(parameters.bytes().size()) +
                                 " bytes where there are none");
}

// `name` is the codec's.
inline Result<CodecParameters> ParseNoOptions(std::string_view name,
                                              std::span<const Option> options) {
  if (options.empty()) return CodecParameters();
  return Status::InvalidArgument("gradient compression by '" + std::string(name) +
                                 "' has no option '" + std::string(options[0].name) + "' ('" +
                                 std::string(options[0].value) + "'), only 'pull'");
}

inline uint64_t HalvesBytes(const CodecParameters& /*parameters*/, uint64_t count) {
  return count * kHalfBytes;
}

}  // namespace bs::codec
