// Casts by the fastest kernels of src/reduce.
#include "codec/bf16.h"

#include "codec/halves.h"
#include "reduce/casts.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kBf16Id = 3;  // on the wire

void EncodeBf16(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* in,
                float* /*residual*/, void* codes, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  reduce::BestCasts().bfloat16.narrow(codes, in, count, 1);
}

void AddBf16(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* codes,
             void* sum, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  reduce::BestCasts().bfloat16.add(sum, codes, count);
}

void DecodeBf16(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* codes,
                void* values, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  reduce::BestCasts().bfloat16.widen(values, codes, count, 1);
}

}  // namespace

Codec Bf16Codec() {
  return {.id = kBf16Id,
          .name = "bf16",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kNoResidual,
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = [](std::span<const Option> options) { return ParseNoOptions("bf16", options); },
          .check = CheckNoParameters,
          .describe = [](const CodecParameters& /*parameters*/) { return std::string("bf16"); },
          .encoded_bytes = HalvesBytes,
          .check_codes = nullptr,
          .encode = EncodeBf16,
          .add = AddBf16,
          .decode = DecodeBf16};
}

Coding Bf16Coding() { return {.codec = kBf16Id}; }

}  // namespace bs::codec
