// The row of a codec of the tests, whose keys are cut by units and whose sums travel coded.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "codec/codec.h"

namespace bs::codec::testing {

// A row without parameters and residual; the caller sets the functions of codes and their sizes.
inline Codec RowOfUnits(uint32_t id, const char* name, uint64_t unit_elements) {
  return {
      .id = id,
      .name = name,
      .unit_elements = unit_elements,
      .cuts_keys = true,
      .keeps = Keeps::kNoResidual,
      .codes_sums = true,
      .sums = SumsTravel::kSame,
      .parse = [](std::span<const Option>) { return Result<CodecParameters>(CodecParameters()); },
      .check = [](const CodecParameters&) { return Status::Ok(); },
      .describe = [](const CodecParameters&) { return std::string("coded by the tests"); },
      .encoded_bytes = nullptr,
      .check_codes = nullptr,
      .encode = nullptr,
      .add = nullptr,
      .decode = nullptr};
}

}  // namespace bs::codec::testing
