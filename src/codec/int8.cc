// The row of dithering with other options.
#include "codec/int8.h"

#include <optional>
#include <span>
#include <string>

#include "codec/dithering.h"
#include "codec/dithering_options.h"

namespace bs::codec {
namespace {

constexpr uint32_t kInt8Id = 8;  // on the wire

DitherOptions Int8WithSeed(uint64_t seed) { return {.levels = 127, .bucket = 256, .seed = seed}; }

Result<CodecParameters> ParseInt8(std::span<const Option> given) {
  DitherOptions options = Int8WithSeed(0);
  for (const Option& option : given) {
    if (option.name != "seed") {
      return Status::InvalidArgument("gradient compression by 'int8' has no option '" +
                                     std::string(option.name) + "' ('" + std::string(option.value) +
                                     "'), only 'seed', 'ef' and 'pull': 'dithering' has more");
    }
    if (const Status wrong = ReadDitherSeed(option, &options); !wrong.ok()) return wrong;
  }
  return WriteDitherOptions(options);
}

Status CheckInt8(const CodecParameters& parameters) {
  const std::optional<DitherOptions> options = ReadDitherOptions(parameters);
  if (options && *options == Int8WithSeed(options->seed)) return Status::Ok();
  return Status::InvalidArgument("parameters that are not those of 127 levels in 256 and a seed");
}

std::string DescribeInt8(const CodecParameters& parameters) {
  const std::optional<DitherOptions> options = ReadDitherOptions(parameters);
  return options && options->seed > 0 ? "int8 with seed " + std::to_string(options->seed) : "int8";
}

}  // namespace

Codec Int8Codec() {
  const Codec dithering = DitheringCodec();
  return {.id = kInt8Id,
          .name = "int8",
          .unit_elements = dithering.unit_elements,
          .cuts_keys = dithering.cuts_keys,
          .keeps = dithering.keeps,
          .codes_sums = dithering.codes_sums,
          .sums = dithering.sums,
          .parse = ParseInt8,
          .check = CheckInt8,
          .describe = DescribeInt8,
          .encoded_bytes = dithering.encoded_bytes,
          .check_codes = dithering.check_codes,
          .encode = dithering.encode,
          .add = dithering.add,
          .decode = dithering.decode};
}

}  // namespace bs::codec
