// The words of the field as types: keys, priorities, partitions, element types, time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bs {

using Key = uint64_t;      // identity of a tensor, the same on every worker
using Priority = int32_t;  // larger goes first
using Round = uint64_t;    // 0 is the initial value (broadcast), 1.. are summations

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Codes are MXNet's (spec: data head), so they need no translation on the wire.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kBfloat16 = 12,
};

// The dtype with this code; nothing if there is none that we can sum.
std::optional<DType> DTypeFromCode(uint32_t code);
// Bytes of one element.
size_t SizeOf(DType dtype);
// "float32" and so on.
std::string_view NameOf(DType dtype);

// What a server does with the pushes of a key.  Numbers are on the wire (PROTOCOL.md).
enum class Mode : uint8_t {
  kSynchronous = 0,   // sums one of each worker; everyone pulls the sum
  kAsynchronous = 1,  // updates its weights with each, as it comes; everyone pulls the weights
};

// How much a push to an asynchronous key counts; what is not set is the optimizer's own.
struct PushRates {
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<double> rescale_grad;
};

// A contiguous byte range of a tensor that travels as one message.
struct Partition {
  uint32_t index = 0;
  uint32_t server = 0;  // rank of the server that sums it
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

// A training step: from one sum of the largest tensor to the next.
struct StepTime {
  uint64_t number = 0;  // from 1
  Duration length{};
};

}  // namespace bs
