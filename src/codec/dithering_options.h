// Options of dithering: a user's, and their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "codec/codec.h"

namespace bs::codec {

struct DitherOptions {
  bool is_natural = false;  // levels
  bool is_l2 = false;       // norms
  uint32_t levels = 0;
  uint32_t bucket = 2048;  // elements
  uint64_t seed = 0;       // 0: the job's number

  // Bits of a code.  REQUIRES: the options are valid.
  uint32_t width() const;
  uint32_t most_levels() const;
  bool is_valid() const;
  bool operator==(const DitherOptions&) const = default;
};

// Nothing unless the bytes are those of valid options.
std::optional<DitherOptions> ReadDitherOptions(const CodecParameters& parameters);

CodecParameters WriteDitherOptions(const DitherOptions& options);

// Sets `seed`.  kInvalidArgument, in a user's words, unless the option is one.
Status ReadDitherSeed(const Option& option, DitherOptions* options);

// The functions of the row in dithering.h.
Result<CodecParameters> ParseDithering(std::span<const Option> given);
Status CheckDithering(const CodecParameters& parameters);
std::string DescribeDithering(const CodecParameters& parameters);

}  // namespace bs::codec
