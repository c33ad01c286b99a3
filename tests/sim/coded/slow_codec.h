// bf16 that takes simulated time, for tests of clocks: its parameters hold the address of a clock,
// which its functions move on.
#pragma once

#include <chrono>
#include <cstring>
#include <span>

#include "base/types.h"
#include "codec/codec.h"
#include "codec/coding.h"

namespace bs::sim {

inline constexpr Duration kSlowEncode = std::chrono::milliseconds(30);
inline constexpr Duration kSlowAdd = std::chrono::milliseconds(5);
inline constexpr Duration kSlowDecode = std::chrono::milliseconds(2);

// `Clock` has Skip(Duration), and outlives all rounds in this coding.
template <typename Clock>
struct SlowBf16 {
  static constexpr uint32_t kId = 3;

  static bs::Coding Coding(Clock* clock) {
    return {.codec = kId,
            .parameters = CodecParameters(std::as_bytes(std::span(&clock, 1))),
            .sums = SumsTravel::kSame};
  }
  static const codec::Codec& Quick() { return codec::Builtin().Get({.codec = kId}); }
  static void Pass(const CodecParameters& parameters, Duration time) {
    Clock* clock = nullptr;
    std::memcpy(&clock, parameters.bytes().data(), sizeof(clock));
    clock->Skip(time);
  }
  static codec::Codec Row() {
    codec::Codec row = Quick();
    row.check = [](const CodecParameters&) { return Status::Ok(); };
    row.encode = [](const CodecParameters& parameters, const codec::Place& place, const void* in,
                    float* residual, void* codes, size_t count) {
      Pass(parameters, kSlowEncode);
      Quick().encode({}, place, in, residual, codes, count);
    };
    row.add = [](const CodecParameters& parameters, const codec::Place& place, const void* codes,
                 void* sum, size_t count) {
      Pass(parameters, kSlowAdd);
      Quick().add({}, place, codes, sum, count);
    };
    row.decode = [](const CodecParameters& parameters, const codec::Place& place, const void* codes,
                    void* values, size_t count) {
      Pass(parameters, kSlowDecode);
      Quick().decode({}, place, codes, values, count);
    };
    return row;
  }
};

}  // namespace bs::sim
