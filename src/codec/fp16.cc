// Casts by the fastest kernels of src/reduce; sums are divided before and multiplied behind, those
// of a host too.
#include "codec/fp16.h"

#include <algorithm>
#include <array>
#include <bit>

#include "codec/halves.h"
#include "reduce/casts.h"
#include "reduce/float_environment.h"
#include "reduce/reduce.h"

namespace bs::codec {
namespace {

constexpr uint32_t kFp16Id = 2;  // on the wire

// The divisor of gradients, or of sums, that are coded at `place`.
float Divisor(const Place& place) { return static_cast<float>(std::bit_ceil(place.num_workers)); }

// Here and in DecodeFp16 the thread's floating-point environment plays no part: the divisor is a
// power of two, casts round to nearest by themselves, and no float16 is subnormal in float32.
void EncodeFp16(const CodecParameters& /*parameters*/, const Place& place, const void* in,
                float* /*residual*/, void* codes, size_t count) {
  reduce::BestCasts().float16.narrow(codes, in, count, 1 / Divisor(place));
}

// Adds the sum of several workers: each value is exact before it is added.
void AddDivided(float divisor, const void* codes, void* sum, size_t count) {
  std::array<float, 256> values;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (size_t at = 0; at < count; at += values.size()) {
    const size_t in_block = std::min(values.size(), count - at);
    void* const target = static_cast<std::byte*>(sum) + at * sizeof(float);
    reduce::BestCasts().float16.widen(values.data(),
                                      static_cast<const std::byte*>(codes) + at * sizeof(uint16_t),
                                      in_block, divisor);
    reduce::Sum(reduce::BestKernels(), DType::kFloat32, target, values.data(), in_block);
  }
}

// Adds the gradient of a worker, or the sum of a host.
void AddFp16(const CodecParameters& /*parameters*/, const Place& place, const void* codes,
             void* sum, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  if (place.num_workers > 1) return AddDivided(Divisor(place), codes, sum, count);
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
