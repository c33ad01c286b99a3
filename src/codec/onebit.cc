// Units, and their codes; the loops are in onebit_kernels.h.
#include "codec/onebit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "codec/feedback.h"
#include "codec/kernels/onebit_kernels.h"
#include "codec/units.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kOnebitId = 4;  // on the wire

constexpr size_t kLanes = 8;
constexpr size_t kScaleBytes = sizeof(float);
constexpr size_t kCodesOfUnit = kScaleBytes + kUnitElements / kLanes;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Eight = std::array<float, kLanes>;

// A unit, or the shorter last one, and where its codes are.
struct Unit {
  OnebitInput input;
  unsigned char* codes;
  size_t count;

  size_t eights() const { return count / kLanes; }
  size_t rest() const { return count % kLanes; }
  unsigned char* signs() const { return codes + kScaleBytes; }
};

const OnebitKernels& Kernels() { return *AvailableOnebit().back(); }

bool IsScaled(const CodecParameters& parameters) {
  return !parameters.bytes().empty() && parameters.bytes()[0] == std::byte{1};
}

size_t CodesOf(size_t count) { return kScaleBytes + (count + kLanes - 1) / kLanes; }

// The last elements of a unit, fewer than eight, filled up with 0.
class Tail {
 public:
  explicit Tail(const Unit& unit) : unit_(unit) {
    const size_t at = unit.eights() * kLanes;
    std::memcpy(in_.data(), unit.input.in + at * sizeof(float), bytes());
    if (keeps()) std::memcpy(residual_.data(), unit.input.residual + at, bytes());
  }
  OnebitInput input() {
    return {.in = reinterpret_cast<const unsigned char*>(in_.data()),
            .residual = keeps() ? residual_.data() : nullptr,
            .ratio = unit_.input.ratio};
  }
  void PutResidual() const {
    if (!keeps()) return;
    std::memcpy(unit_.input.residual + unit_.eights() * kLanes, residual_.data(), bytes());
  }

 private:
  size_t bytes() const { return unit_.rest() * sizeof(float); }
  bool keeps() const { return unit_.input.residual != nullptr; }

  const Unit& unit_;
  Eight in_{};
  Eight residual_{};
};

// Finite if and only if all elements are.
double SumOfMagnitudes(const Unit& unit) {
  std::array<double, kLanes> lanes{};
  Kernels().add_magnitudes(unit.input, unit.eights(), lanes.data());
  if (unit.rest() > 0) Kernels().add_magnitudes(Tail(unit).input(), 1, lanes.data());
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Codes that say that the unit is not finite.  Its gradient is lost; its residual stays.
void GiveUp(const Unit& unit) {
  std::memcpy(unit.codes, &kNan, kScaleBytes);
  std::memset(unit.signs(), 0, CodesOf(unit.count) - kScaleBytes);
  if (unit.input.residual == nullptr) return;
  SkipRound({unit.input.residual, unit.count}, unit.input.ratio);
}

void EncodeUnit(const Unit& unit, bool is_scaled) {
  const double sum = SumOfMagnitudes(unit);
  if (!std::isfinite(sum)) return GiveUp(unit);
  const float scale = is_scaled ? static_cast<float>(sum / static_cast<double>(unit.count)) : 1.0F;
  std::memcpy(unit.codes, &scale, kScaleBytes);
  Kernels().code(unit.input, unit.eights(), scale, unit.signs());
  if (unit.rest() == 0) return;
  Tail tail(unit);
  Kernels().code(tail.input(), 1, scale, unit.signs() + unit.eights());
  tail.PutResidual();
}

void EncodeOnebit(const CodecParameters& parameters, const Place& place, const void* in,
                  float* residual, void* codes, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  Unit unit{.input = {.in = static_cast<const unsigned char*>(in),
                      .residual = residual,
                      .ratio = place.ratio},
            .codes = static_cast<unsigned char*>(codes),
            .count = 0};
  for (; count > 0; count -= unit.count) {
    unit.count = std::min<size_t>(count, kUnitElements);
    EncodeUnit(unit, IsScaled(parameters));
    unit.input.in += unit.count * sizeof(float);
    unit.codes += CodesOf(unit.count);
    if (residual != nullptr) unit.input.residual += unit.count;
  }
}

float ScaleOf(const unsigned char* codes) {
  float scale = 0;
  std::memcpy(&scale, codes, kScaleBytes);
  return scale;
}

template <bool kAdd>
void PutUnit(const unsigned char* codes, unsigned char* target, size_t count) {
  const auto put = kAdd ? Kernels().add : Kernels().put;
  const float scale = ScaleOf(codes);
  const size_t eights = count / kLanes;
  put(codes + kScaleBytes, scale, eights, target);
  const size_t bytes = count % kLanes * sizeof(float);
  if (bytes == 0) return;
  unsigned char* const at = target + eights * kLanes * sizeof(float);
  std::array<unsigned char, kLanes * sizeof(float)> rest{};
  std::memcpy(rest.data(), at, bytes);
  put(codes + kScaleBytes + eights, scale, 1, rest.data());
  std::memcpy(at, rest.data(), bytes);
}

template <bool kAdd>
void PutOnebit(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* codes,
               void* target, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const auto* from = static_cast<const unsigned char*>(codes);
  auto* to = static_cast<unsigned char*>(target);
  while (count > 0) {
    const size_t in_unit = std::min<size_t>(count, kUnitElements);
    PutUnit<kAdd>(from, to, in_unit);
    from += CodesOf(in_unit);
    to += in_unit * sizeof(float);
    count -= in_unit;
  }
}

Result<CodecParameters> ParseOnebit(std::span<const Option> options) {
  std::byte flags{0};
  for (const Option& option : options) {
    if (option.name != "scaling") {
      return Status::InvalidArgument("gradient compression by 'onebit' has no option '" +
                                     std::string(option.name) + "' ('" + std::string(option.value) +
                                     "'), only 'scaling', 'ef' and 'pull'");
    }
    if (option.value != "True" && option.value != "False") {
      return Status::InvalidArgument("scaling '" + std::string(option.value) +
                                     "' of gradient compression: want True or False");
    }
    flags = option.value == "True" ? std::byte{1} : std::byte{0};
  }
  return CodecParameters(std::span(&flags, 1));
}

Status CheckOnebit(const CodecParameters& parameters) {
  const std::span<const std::byte> bytes = parameters.bytes();
  if (bytes.size() == 1 && bytes[0] <= std::byte{1}) return Status::Ok();
  return Status::InvalidArgument("parameters that are not one byte, 0 or 1");
}

std::string DescribeOnebit(const CodecParameters& parameters) {
  return IsScaled(parameters) ? "onebit scaled" : "onebit";
}

uint64_t OnebitBytes(const CodecParameters& /*parameters*/, uint64_t count) {
  const uint64_t rest = count % kUnitElements;
  return count / kUnitElements * kCodesOfUnit + (rest > 0 ? CodesOf(rest) : 0);
}

// A magnitude that `is_scaled` codes may have.
bool IsMagnitude(float scale, bool is_scaled) {
  if (std::isnan(scale)) return true;
  return is_scaled ? std::isfinite(scale) && !std::signbit(scale) : scale == 1;
}

Status CheckOnebitCodes(const CodecParameters& parameters, std::span<const std::byte> codes,
                        uint64_t count) {
  const auto* unit = reinterpret_cast<const unsigned char*>(codes.data());
  while (count > 0) {
    const size_t in_unit = std::min<uint64_t>(count, kUnitElements);
    const size_t size = CodesOf(in_unit);
    if (!IsMagnitude(ScaleOf(unit), IsScaled(parameters))) {
      return Status::InvalidArgument("the magnitude of a unit is " + std::to_string(ScaleOf(unit)));
    }
    const size_t used = in_unit % kLanes;
    if (used > 0 && unit[size - 1] >> used != 0) {
      return Status::InvalidArgument("signs behind the last element");
    }
    unit += size;
    count -= in_unit;
  }
  return Status::Ok();
}

}  // namespace

Codec OnebitCodec() {
  return {.id = kOnebitId,
          .name = "onebit",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kResidualIfAsked,
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = ParseOnebit,
          .check = CheckOnebit,
          .describe = DescribeOnebit,
          .encoded_bytes = OnebitBytes,
          .check_codes = CheckOnebitCodes,
          .encode = EncodeOnebit,
          .add = PutOnebit<true>,
          .decode = PutOnebit<false>};
}

}  // namespace bs::codec
