// Casts by the fastest kernels of src/reduce; sums are divided before and multiplied behind.
#include "codec/fp16.h"

#include <bit>

#include "codec/halves.h"
#include "reduce/casts.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kFp16Id = 2;  // on the wire

// The divisor of what is coded at `place`.
float Divisor(const Place& place) {
  return place.rank == kServerRank ? static_cast<float>(std::bit_ceil(place.num_workers)) : 1;
}

// Here and in DecodeFp16 the thread's floating-point environment plays no part: the divisor is a
// power of two, casts round to nearest by themselves, and no float16 is subnormal in float32.
void EncodeFp16(const CodecParameters& /*parameters*/, const Place& place, const void* in,
                float* /*residual*/, void* codes, size_t count) {
  reduce::BestCasts().float16.narrow(codes, in, count, 1 / Divisor(place));
}

// Adds the gradient of a worker.
void AddFp16(const CodecParameters& /*parameters*/, const Place& /*place*/, const void* codes,
             void* sum, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  reduce::BestCasts().float16.add(sum, codes, count);
}

void DecodeFp16(const CodecParameters& /*parameters*/, const Place& place, const void* codes,
                void* values, size_t count) {
  reduce::BestCasts().float16.widen(values, codes, count, Divisor(place));
}

}  // namespace

Codec Fp16Codec() {
  return {.id = kFp16Id,
          .name = "fp16",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kNoResidual,
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = [](std::span<const Option> options) { return ParseNoOptions("fp16", options); },
          .check = CheckNoParameters,
          .describe = [](const CodecParameters& /*parameters*/) { return std::string("fp16"); },
          .encoded_bytes = HalvesBytes,
          .check_codes = nullptr,
          .encode = EncodeFp16,
          .add = AddFp16,
          .decode = DecodeFp16};
}

}  // namespace bs::codec
