// The fields of a bs_operation: which of them are set, and the sizes that callers may give it.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/status.h"
#include "bytescheduler/c_api.h"

namespace bs::capi {

// The fields that only some kinds take.
enum class Field : uint8_t {
  kKey,
  kIn,
  kOut,
  kSizeBytes,
  kPushed,
  kDone,
  kPriority,
  kDeferred,
  kCoding,
  kFactor,
  kCalled,
  kWaitedNs,
  kAtOnce,
  kDType,
  kRoot,
  kHosted,
  kAbout,
  kRates,
  kOptimizer,
  kPickle,
  kPickleBytes,
  kPartitionBytes,
  kCreditBytes,
  kExchange,
};

// A set of fields.
class Fields {
 public:
  constexpr Fields() = default;
  constexpr Fields(std::initializer_list<Field> fields) {
    for (const Field field : fields) bits_ |= uint32_t{1} << static_cast<uint32_t>(field);
  }
  // The fields of an operation that are not 0.
  static Fields SetIn(const bs_operation& operation);

  constexpr Fields operator|(Fields other) const { return Fields(bits_ | other.bits_); }
  constexpr Fields Without(Fields other) const { return Fields(bits_ & ~other.bits_); }
  constexpr bool Has(Field field) const { return Fields{field}.Without(*this).empty(); }
  constexpr bool empty() const { return bits_ == 0; }
  // The name of the first, as in the struct.  REQUIRES: not empty.
  const char* first_name() const;

 private:
  explicit constexpr Fields(uint32_t bits) : bits_(bits) {}

  uint32_t bits_ = 0;
};

// Returns `given`, or a copy in `room` if the caller's struct has another size: what it lacks is 0
// there.  kInvalidArgument if no caller can have a struct of that size, or if it sets a field that
// this library does not know.
Result<const bs_operation*> OperationOf(const bs_operation* given, bs_operation* room);

}  // namespace bs::capi
