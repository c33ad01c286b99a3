// Reads and writes the options of dithering.
#include "codec/dithering_options.h"

#include <array>
#include <string_view>

#include "codec/options.h"
#include "codec/units.h"

namespace bs::codec {
namespace {

constexpr uint32_t kMostLevels = 32767;
constexpr uint32_t kMostNaturalLevels = 30;
constexpr uint32_t kLeastBucket = 64;  // and each bucket is a multiple of it
constexpr uint32_t kLeastWidth = 2;
constexpr uint32_t kMostWidth = 16;
constexpr size_t kParameterBytes = 15;
constexpr uint32_t kNaturalFlag = 1;
constexpr uint32_t kL2Flag = 2;

template <typename Number>
void PutLittle(Number number, size_t bytes, std::byte** to) {
  for (size_t i = 0; i < bytes; ++i) *(*to)++ = static_cast<std::byte>(number >> 8 * i & 0xffU);
}

// Nothing unless the text is a whole number and no more than that.
std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t number = 0;
  if (!ReadAll(text, &number)) return std::nullopt;
  return number;
}

Status ReadBucket(const Option& option, DitherOptions* options) {
  const uint64_t bucket = WholeNumber(option.value).value_or(0);
  if (bucket < kLeastBucket || bucket > kUnitElements || bucket % kLeastBucket != 0) {
    return WrongOption(option, "a multiple of 64 from 64 to 65536");
  }
  options->bucket = static_cast<uint32_t>(bucket);
  return Status::Ok();
}

Status ReadChoice(const Option& option, std::string_view off, std::string_view on, bool* is_on) {
  *is_on = option.value == on;
  if (*is_on || option.value == off) return Status::Ok();
  return WrongOption(option, "'" + std::string(off) + "' or '" + std::string(on) + "'");
}

Status ReadOption(const Option& option, DitherOptions* options) {
  if (option.name == "partition") {
    return ReadChoice(option, "linear", "natural", &options->is_natural);
  }
  if (option.name == "normalize") return ReadChoice(option, "max", "l2", &options->is_l2);
  if (option.name == "bucket") return ReadBucket(option, options);
  if (option.name == "seed") return ReadDitherSeed(option, options);
  return Status::InvalidArgument("gradient compression by 'dithering' has no option '" +
                                 std::string(option.name) + "' ('" + std::string(option.value) +
                                 "'), only 'k', 'partition', 'normalize', 'bucket', 'seed', 'ef' "
                                 "and 'pull'");
}

std::string LevelsWanted(const DitherOptions& options) {
  return "a whole number from 1 to " + std::to_string(options.most_levels()) + " with partition '" +
         (options.is_natural ? "natural'" : "linear'");
}

}  // namespace

uint32_t DitherOptions::width() const {
  uint32_t width = kLeastWidth;
  while (width < kMostWidth && 1U << (width - 1) <= levels) width *= 2;
  return width;
}

uint32_t DitherOptions::most_levels() const {
  return is_natural ? kMostNaturalLevels : kMostLevels;
}

bool DitherOptions::is_valid() const {
  return levels > 0 && levels <= most_levels() && bucket >= kLeastBucket &&
         bucket <= kUnitElements && bucket % kLeastBucket == 0;
}

CodecParameters WriteDitherOptions(const DitherOptions& options) {
  std::array<std::byte, kParameterBytes> bytes;
  std::byte* at = bytes.data();
  PutLittle((options.is_natural ? kNaturalFlag : 0) | (options.is_l2 ? kL2Flag : 0), 1, &at);
  PutLittle(options.levels, 2, &at);
  PutLittle(options.bucket, 4, &at);
  PutLittle(options.seed, 8, &at);
  return CodecParameters(bytes);
}

std::optional<DitherOptions> ReadDitherOptions(const CodecParameters& parameters) {
  const std::span<const std::byte> bytes = parameters.bytes();
  if (bytes.size() != kParameterBytes) return std::nullopt;
  const auto number = [bytes](size_t at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << 8 * i;
    return value;
  };
  const uint64_t flags = number(0, 1);
  const DitherOptions options = {.is_natural = (flags & kNaturalFlag) != 0,
                                 .is_l2 = (flags & kL2Flag) != 0,
                                 .levels = static_cast<uint32_t>(number(1, 2)),
                                 .bucket = static_cast<uint32_t>(number(3, 4)),
                                 .seed = number(7, 8)};
  if (flags > (kNaturalFlag | kL2Flag) || !options.is_valid()) return std::nullopt;
  return options;
}

Status ReadDitherSeed(const Option& option, DitherOptions* options) {
  options->seed = WholeNumber(option.value).value_or(0);
  if (options->seed != 0) return Status::Ok();
  return WrongOption(option, "a whole number from 1 to 18446744073709551615");
}

Result<CodecParameters> ParseDithering(std::span<const Option> given) {
  DitherOptions options;
  const Option* levels = nullptr;
  for (const Option& option : given) {
    if (option.name == "k") {
      levels = &option;  // its bounds depend on `partition`
    } else if (const Status wrong = ReadOption(option, &options); !wrong.ok()) {
      return wrong;
    }
  }
  if (levels == nullptr) {
    return Status::InvalidArgument(
        "gradient compression by 'dithering' needs k, the number of levels: want " +
        LevelsWanted(options) + ", such as 7");
  }
  const uint64_t number = WholeNumber(levels->value).value_or(0);
  if (number == 0 || number > options.most_levels()) {
    return WrongOption(*levels, LevelsWanted(options));
  }
  options.levels = static_cast<uint32_t>(number);
  return WriteDitherOptions(options);
}

Status CheckDithering(const CodecParameters& parameters) {
  if (ReadDitherOptions(parameters)) return Status::Ok();
  return Status::InvalidArgument(
      "parameters that are not 15 bytes: 0 to 3, levels, a bucket and a seed");
}

std::string DescribeDithering(const CodecParameters& parameters) {
  const std::optional<DitherOptions> options = ReadDitherOptions(parameters);
  if (!options) return "dithering";
  std::string description = "dithering with k " + std::to_string(options->levels) +
                            (options->is_natural ? " natural" : " linear") +
                            (options->is_l2 ? " l2" : " max") + ", bucket " +
                            std::to_string(options->bucket);
  if (options->seed > 0) description += ", seed " + std::to_string(options->seed);
  return description;
}

}  // namespace bs::codec
