// A codec of the tests: a byte an element, in steps that the job chooses, with an offset that
// depends on where the element is in the job.
//
// It needs what two bits do not: eight bytes of parameters, codes that can be wrong, and a place:
// whoever decodes with another key, round or element than the coder finds other values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "codec/codec.h"

namespace bs::codec::testing {

inline constexpr uint32_t kStepsId = 77;
inline constexpr uint64_t kStepsUnit = 32;
inline constexpr uint8_t kNoCode = 255;

inline Coding StepsCoding(double step) {
  return {.codec = kStepsId, .parameters = CodecParameters(std::as_bytes(std::span(&step, 1)))};
}

inline Result<CodecParameters> ParseSteps(std::span<const Option> options) {
  if (options.size() == 1 && options[0].name == "step") {
    return StepsCoding(std::atof(std::string(options[0].value).c_str())).parameters;
  }
  return Status::InvalidArgument("want one 'step'");
}

inline double StepOf(const CodecParameters& parameters) {
  double step = 0;
  if (parameters.bytes().size() != sizeof(step)) return 0;
  std::memcpy(&step, parameters.bytes().data(), sizeof(step));
  return step;
}

// In steps; so large that nothing fits where it is another.
inline double OffsetOf(const Place& place, size_t i) {
  const uint64_t mixed = (place.key * 31 + place.round) * 1000003 + place.first_element + i;
  return static_cast<double>(mixed * 2654435761U % 100000);
}

inline Status CheckSteps(const CodecParameters& parameters) {
  if (std::isfinite(StepOf(parameters)) && StepOf(parameters) > 0) return Status::Ok();
  return Status::InvalidArgument("a step that is none");
}

inline std::string DescribeSteps(const CodecParameters& parameters) {
  return "steps of " + std::to_string(StepOf(parameters));
}

inline uint64_t StepsBytes(const CodecParameters& /*parameters*/, uint64_t count) { return count; }

inline Status CheckStepsCodes(const CodecParameters& /*parameters*/,
                              std::span<const std::byte> codes, uint64_t /*count*/) {
  const bool bad = std::any_of(codes.begin(), codes.end(),
                               [](std::byte code) { return code == std::byte{kNoCode}; });
  return bad ? Status::InvalidArgument("a byte that is no code") : Status::Ok();
}

// Codes are multiples of the step behind the offset, modulo 101: values within 50 steps.
inline float ValueOf(const CodecParameters& parameters, const Place& place, uint8_t code,
                     size_t i) {
  double steps = std::fmod(static_cast<double>(code) - OffsetOf(place, i), 101);
  if (steps > 50) steps -= 101;
  if (steps < -50) steps += 101;
  return static_cast<float>(steps * StepOf(parameters));
}

inline void EncodeSteps(const CodecParameters& parameters, const Place& place, const void* in,
                        float* residual, void* codes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(in) + i * sizeof(value), sizeof(value));
    residual[i] = place.ratio * residual[i] + value;
    const double steps = std::clamp(std::round(residual[i] / StepOf(parameters)), -50.0, 50.0);
    double code = std::fmod(steps + OffsetOf(place, i), 101);
    if (code < 0) code += 101;
    static_cast<uint8_t*>(codes)[i] = static_cast<uint8_t>(code);
    residual[i] -= ValueOf(parameters, place, static_cast<uint8_t>(code), i);
  }
}

template <bool kAdd>
void PutSteps(const CodecParameters& parameters, const Place& place, const void* codes,
              void* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    char* const at = static_cast<char*>(target) + i * sizeof(float);
    float value = 0;
    if (kAdd) std::memcpy(&value, at, sizeof(value));
    value += ValueOf(parameters, place, static_cast<const uint8_t*>(codes)[i], i);
    std::memcpy(at, &value, sizeof(value));
  }
}

inline Codec StepsCodec() {
  return {.id = kStepsId,
          .name = "steps",
          .unit_elements = kStepsUnit,
          .parse = ParseSteps,
          .check = CheckSteps,
          .describe = DescribeSteps,
          .encoded_bytes = StepsBytes,
          .check_codes = CheckStepsCodes,
          .encode = EncodeSteps,
          .add = PutSteps<true>,
          .decode = PutSteps<false>};
}

}  // namespace bs::codec::testing
