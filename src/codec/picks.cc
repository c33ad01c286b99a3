// Parameters and values of topk and randomk.
#include "codec/picks.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "codec/feedback.h"
#include "codec/options.h"
#include "codec/units.h"
#include "reduce/casts.h"

namespace bs::codec {
namespace {

constexpr uint64_t kWholeShare = uint64_t{1} << 32U;
constexpr size_t kHalvesAt = 0;
constexpr size_t kWholeAt = 1;
constexpr size_t kShareAt = 5;
constexpr size_t kSeedAt = 13;
constexpr size_t kPicksParameters = 21;
constexpr uint16_t kNanHalf = 0x7e00;

template <typename T>
T NumberAt(std::span<const std::byte> bytes, size_t at) {
  T number{};
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

template <typename T>
void PutNumber(T number, size_t at, std::array<std::byte, kPicksParameters>* bytes) {
  std::memcpy(bytes->data() + at, &number, sizeof(number));
}

uint64_t ShareOf(double fraction) {
  return static_cast<uint64_t>(std::ceil(std::ldexp(fraction, 32)));
}

// The shortest text of a fraction with this share, so that other shares have other texts.
std::string TextOfShare(uint64_t share) {
  constexpr int kMostDigits = 17;
  const double exact = std::ldexp(static_cast<double>(share), -32);
  std::array<char, 32> text{};
  std::string shortest;
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), exact,
                                            std::chars_format::general, digits);
    shortest.assign(text.data(), end);
    double fraction = 0;
    if (ReadAll(shortest, &fraction) && ShareOf(fraction) == share) break;
  }
  return shortest;
}

// A fraction, or a whole number of the tensor's elements: "0.01", "20/65536".
bool ReadShare(std::string_view text, Picks* picks) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    double fraction = 0;
    if (!ReadAll(text, &fraction) || !(fraction > 0 && fraction < 1)) return false;
    picks->share = ShareOf(fraction);
    return true;
  }
  uint32_t elements = 0;
  if (!ReadAll(text.substr(0, slash), &picks->whole) ||
      !ReadAll(text.substr(slash + 1), &elements) || picks->whole == 0 || elements == 0) {
    return false;
  }
  const uint64_t used = std::min(picks->whole, elements);
  picks->share = ((used << 32U) + elements - 1) / elements;
  return true;
}

Status UnknownPickOption(std::string_view codec, const Option& option, bool has_seed) {
  return Status::InvalidArgument("gradient compression by '" + std::string(codec) +
                                 "' has no option '" + std::string(option.name) + "' ('" +
                                 std::string(option.value) + "'), only 'k', 'fp16', " +
                                 (has_seed ? "'seed', " : "") + "'ef' and 'pull'");
}

}  // namespace

uint64_t Picks::Of(uint64_t count) const {
  const uint64_t used = std::min(share, kWholeShare);
  return std::max<uint64_t>(1, used * count >> 32U);
}

Picks PicksOf(const CodecParameters& parameters) {
  const std::span<const std::byte> bytes = parameters.bytes();
  if (bytes.size() != kPicksParameters) return {};
  return {.halves = bytes[kHalvesAt] == std::byte{1},
          .whole = NumberAt<uint32_t>(bytes, kWholeAt),
          .share = NumberAt<uint64_t>(bytes, kShareAt),
          .seed = NumberAt<uint64_t>(bytes, kSeedAt)};
}

CodecParameters ParametersOf(const Picks& picks) {
  std::array<std::byte, kPicksParameters> bytes{};
  bytes[kHalvesAt] = picks.halves ? std::byte{1} : std::byte{0};
  PutNumber(picks.whole, kWholeAt, &bytes);
  PutNumber(picks.share, kShareAt, &bytes);
  PutNumber(picks.seed, kSeedAt, &bytes);
  return CodecParameters(bytes);
}

namespace {

Status ReadK(const Option& option, Picks* picks) {
  if (ReadShare(option.value, picks)) return Status::Ok();
  return WrongOption(option,
                     "a fraction between 0 and 1, such as 0.01, or how many of a tensor's "
                     "elements, such as 20/65536");
}

Status ReadHalves(const Option& option, Picks* picks) {
  picks->halves = option.value == "True";
  if (picks->halves || option.value == "False") return Status::Ok();
  return WrongOption(option, "True or False");
}

Status ReadSeed(const Option& option, Picks* picks) {
  if (ReadAll(option.value, &picks->seed) && picks->seed > 0) return Status::Ok();
  return WrongOption(option, "a whole number from 1 to 2^64 - 1");
}

Status ReadPickOption(std::string_view codec, const Option& option, bool has_seed, Picks* picks) {
  if (option.name == "k") return ReadK(option, picks);
  if (option.name == "fp16") return ReadHalves(option, picks);
  if (has_seed && option.name == "seed") return ReadSeed(option, picks);
  return UnknownPickOption(codec, option, has_seed);
}

}  // namespace

Result<Picks> ParsePicks(std::string_view codec, std::span<const Option> options, bool has_seed) {
  Picks picks;
  for (const Option& option : options) {
    if (Status wrong = ReadPickOption(codec, option, has_seed, &picks); !wrong.ok()) return wrong;
  }
  if (picks.share > 0) return picks;
  return Status::InvalidArgument("gradient compression by '" + std::string(codec) +
                                 "' needs k, such as 0.01: which part of the elements travels");
}

Status CheckShare(const Picks& picks, uint64_t bytes_a_pick) {
  if (picks.whole > 0 || picks.halves) return Status::Ok();
  constexpr uint64_t kPlainBytes = kUnitElements * sizeof(float);
  if (PicksBytes(picks, bytes_a_pick, kUnitElements) < kPlainBytes) return Status::Ok();
  return Status::InvalidArgument(
      std::string("k of gradient compression is so large that codes are no smaller than gradients: "
                  "want less than ") +
      (bytes_a_pick > sizeof(float) ? "2/3" : "1"));
}

Status CheckPicks(const CodecParameters& parameters) {
  const std::span<const std::byte> bytes = parameters.bytes();
  if (bytes.size() != kPicksParameters || bytes[kHalvesAt] > std::byte{1}) {
    return Status::InvalidArgument("parameters that are not a flag and three numbers");
  }
  const uint64_t share = PicksOf(parameters).share;
  if (share > 0 && share <= kWholeShare) return Status::Ok();
  return Status::InvalidArgument("a share of " + std::to_string(share) +
                                 " picks: want 1 to 2^32 in 2^32");
}

std::string DescribePicks(std::string_view codec, const Picks& picks) {
  const std::string k = picks.whole > 0 ? std::to_string(picks.whole) : TextOfShare(picks.share);
  std::string description = std::string(codec) + " with k " + k;
  if (picks.halves) description += ", half values";
  if (picks.seed > 0) description += ", seed " + std::to_string(picks.seed);
  return description;
}

uint64_t PicksBytes(const Picks& picks, uint64_t bytes_a_pick, uint64_t count) {
  const uint64_t rest = count % kUnitElements;
  const uint64_t in_units = count / kUnitElements * picks.Of(kUnitElements);
  return (in_units + (rest > 0 ? picks.Of(rest) : 0)) * bytes_a_pick;
}

PickForm FormOf(const Picks& picks, const Place& place) {
  return {.halves = picks.halves,
          .divisor = picks.halves ? static_cast<float>(std::bit_ceil(place.num_workers)) : 1};
}

void WritePicks(const PickForm& form, const PickBlock& values, size_t count, unsigned char* to) {
  if (form.halves) {
    reduce::BestCasts().float16.narrow(to, values.data(), count, 1 / form.divisor);
  } else {
    std::memcpy(to, values.data(), count * sizeof(float));
  }
}

void ReadPicks(const PickForm& form, const unsigned char* from, size_t count, PickBlock* values) {
  if (form.halves) {
    reduce::BestCasts().float16.widen(values->data(), from, count, form.divisor);
  } else {
    std::memcpy(values->data(), from, count * sizeof(float));
  }
}

namespace {

Status CheckBlock(std::span<const float> values, bool is_nan) {
  for (const float value : values) {
    if (std::isnan(value) != is_nan) {
      return Status::InvalidArgument("some values of a unit are NaN, others are not");
    }
    if (std::isinf(value)) return Status::InvalidArgument("a value of a unit is infinite");
  }
  return Status::Ok();
}

}  // namespace

Status CheckPickValues(const PickForm& form, const unsigned char* values, size_t count) {
  const bool is_nan = IsNanPick(form, values);
  PickBlock block;
  for (size_t at = 0; at < count; at += kPickBlock) {
    const size_t in_block = std::min(kPickBlock, count - at);
    ReadPicks(form, values + at * form.value_bytes(), in_block, &block);
    const std::span<const float> values_here(block.data(), in_block);
    if (Status wrong = CheckBlock(values_here, is_nan); !wrong.ok()) return wrong;
  }
  return Status::Ok();
}

const PickKernels& BestPicks() { return *AvailablePicks().back(); }

void GiveUpPicks(const PickUnit& unit, const PickForm& form, unsigned char* values) {
  constexpr float kNanFloat = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < unit.picks; ++i) {
    const void* const nan = form.halves ? static_cast<const void*>(&kNanHalf) : &kNanFloat;
    std::memcpy(values + i * form.value_bytes(), nan, form.value_bytes());
  }
  if (unit.input.residual == nullptr) return;
  SkipRound(std::span(unit.input.residual, unit.count), unit.input.ratio);
}

void PutNan(unsigned char* target, size_t count) {
  constexpr float kNanFloat = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(target + i * sizeof(float), &kNanFloat, sizeof(float));
  }
}

bool IsNanPick(const PickForm& form, const unsigned char* values) {
  PickBlock first;
  ReadPicks(form, values, 1, &first);
  return std::isnan(first[0]);
}

}  // namespace bs::codec
