// Types for the field's terms: keys, priorities, partitions, element types, time.  All are values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace bs {

using Key = uint64_t;      // identity of a tensor, the same on every worker
using Priority = int32_t;  // larger goes first
// Priority of partitions that go in the order in which tensors became ready.  It is no less than
// the priorities that frameworks give layers.  It is below the priorities that callers give to
// tensors that are urgent for other reasons.
inline constexpr Priority kEarlyPriority = 0;
inline constexpr uint64_t kEarlyBytes = uint64_t{4} << 20U;  // of a tensor, at most
// Tensors of at most these bytes have at least this priority: they hardly delay early partitions.
inline constexpr uint64_t kSmallTensorBytes = uint64_t{16} << 10U;
inline constexpr Priority kSmallTensorPriority = kEarlyPriority + 1;
using Round = uint64_t;  // 0 is the initial value (broadcast), 1.. are summations

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Element types.  The codes are MXNet's and stand on the wire, so they never change.
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

// Returns the dtype with this code, or nothing if servers cannot sum that type.
std::optional<DType> DTypeFromCode(uint32_t code);
// Returns the size of one element, in bytes.
size_t SizeOf(DType dtype);
// Returns "float32" and so on.
std::string_view NameOf(DType dtype);

// How a server treats the pushes of a key.  The numbers stand on the wire (PROTOCOL.md).
enum class Mode : uint8_t {
  kSynchronous = 0,   // sums one push of each worker; every worker pulls the sum
  kAsynchronous = 1,  // updates weights with each push as it comes; workers pull the weights
};

// How the contributions to an exchange become its result.  The numbers stand on the wire
// (PROTOCOL.md).
enum class Reduction : uint8_t { kSum = 0, kMin = 1, kMax = 2, kProduct = 3 };
// Returns the reduction with this number, or nothing.
std::optional<Reduction> ReductionFromCode(uint32_t code);
// Returns "sum" and so on.
std::string_view NameOf(Reduction reduction);

// Rates for one push to an asynchronous key.  A field without a value takes the optimizer's own.
struct PushRates {
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<double> rescale_grad;
};

// A contiguous byte range of a tensor.  It is scheduled, sent and summed as one unit.
struct Partition {
  uint32_t index = 0;   // position in the tensor, from 0
  uint32_t server = 0;  // rank of the server that sums it
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

// A training step, measured from one sum of the largest tensor to the next.
struct StepTime {
  uint64_t number = 0;  // counts from 1
  Duration length{};
};

// The way that bytes take between two nodes.
enum class Carrier : uint8_t { kUnknown, kTcp, kSharedMemory, kRdma };

// The text that timelines have; empty for kUnknown.
constexpr std::string_view NameOf(Carrier carrier) {
  switch (carrier) {
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kSharedMemory:
      return "shm";
    case Carrier::kRdma:
      return "rdma";
    case Carrier::kUnknown:
      break;
  }
  return "";
}

// Each direction between this node and a peer has its own.
struct Carriers {
  Carrier to = Carrier::kUnknown;
  Carrier from = Carrier::kUnknown;

  bool operator==(const Carriers&) const = default;
};

// How a worker's bytes go to servers.
struct Shares {
  std::vector<uint32_t> weights{};  // by rank, of all bytes, in any unit; empty: equal shares
  std::vector<uint32_t> beside{};  // ranks of servers on the worker's own host: no link leads there
};

// Partition and credit with which a job begins; they suit a link of 1 Gbit/s.  The table of
// settings and bytescheduler/_settings.py repeat them.
inline constexpr uint64_t kFirstPartitionBytes = uint64_t{128} << 10U;
inline constexpr uint64_t kFirstCreditBytes = uint64_t{512} << 10U;

}  // namespace bs
