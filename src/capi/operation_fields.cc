// One table: a field's name and its place in the struct.
#include "capi/operation_fields.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace bs::capi {
namespace {

struct Place {
  Field field;
  const char* name;
  size_t offset;
  size_t size_bytes;  // 4 or 8
};

// In the order of Field.
constexpr auto kPlaces = std::to_array<Place>({
    {Field::kKey, "key", offsetof(bs_operation, key), sizeof(uint64_t)},
    {Field::kIn, "in", offsetof(bs_operation, in), sizeof(void*)},
    {Field::kOut, "out", offsetof(bs_operation, out), sizeof(void*)},
    {Field::kSizeBytes, "size_bytes", offsetof(bs_operation, size_bytes), sizeof(uint64_t)},
    {Field::kPushed, "pushed", offsetof(bs_operation, pushed), sizeof(bs_done)},
    {Field::kDone, "done", offsetof(bs_operation, done), sizeof(bs_done)},
    {Field::kPriority, "priority", offsetof(bs_operation, priority), sizeof(int)},
    {Field::kDeferred, "deferred", offsetof(bs_operation, deferred), sizeof(void*)},
    // Its number and its parameters' size: a coding without both is none.
    {Field::kCoding, "coding", offsetof(bs_operation, coding), 2 * sizeof(uint32_t)},
    {Field::kFactor, "factor", offsetof(bs_operation, factor), sizeof(double)},
    {Field::kCalled, "called", offsetof(bs_operation, called), sizeof(uint64_t)},
    {Field::kWaitedNs, "waited_ns", offsetof(bs_operation, waited_ns), sizeof(int64_t)},
    {Field::kAtOnce, "at_once", offsetof(bs_operation, at_once), sizeof(int)},
    {Field::kDType, "dtype", offsetof(bs_operation, dtype), sizeof(int)},
    {Field::kRoot, "root", offsetof(bs_operation, root), sizeof(int)},
    {Field::kHosted, "hosted", offsetof(bs_operation, hosted), sizeof(int)},
    {Field::kAbout, "about", offsetof(bs_operation, about), sizeof(void*)},
    {Field::kRates, "rates", offsetof(bs_operation, rates), sizeof(void*)},
    {Field::kOptimizer, "optimizer", offsetof(bs_operation, optimizer), sizeof(void*)},
    {Field::kPickle, "pickle", offsetof(bs_operation, pickle), sizeof(void*)},
    {Field::kPickleBytes, "pickle_bytes", offsetof(bs_operation, pickle_bytes), sizeof(uint64_t)},
    {Field::kPartitionBytes, "partition_bytes", offsetof(bs_operation, partition_bytes),
     sizeof(uint64_t)},
    {Field::kCreditBytes, "credit_bytes", offsetof(bs_operation, credit_bytes), sizeof(uint64_t)},
    {Field::kExchange, "exchange", offsetof(bs_operation, exchange), sizeof(void*)},
});

constexpr bool PlacesAreInOrder() {
  size_t at = 0;
  return std::ranges::all_of(
      kPlaces, [&at](const Place& place) { return static_cast<size_t>(place.field) == at++; });
}
static_assert(PlacesAreInOrder());

// The table has every field that only some kinds take, and the struct has no padding: a smaller
// struct of an older caller would have bytes there that no line sets.
constexpr size_t FieldBytes() {
  size_t bytes = sizeof(bs_operation::struct_bytes) + sizeof(bs_operation::kind) +
                 sizeof(bs_operation::context);
  for (const Place& place : kPlaces) bytes += place.size_bytes;
  return bytes + sizeof(bs_coding) - 2 * sizeof(uint32_t);
}
static_assert(FieldBytes() == sizeof(bs_operation) && sizeof(bs_operation) % 8 == 0);

// Far more than the struct ever has: a larger number is no size.
constexpr size_t kMostBytes = 4096;

Status Unsized(size_t struct_bytes) {
  return Status::InvalidArgument("struct_bytes is " + std::to_string(struct_bytes) +
                                 ", which is no size of bs_operation: begin with "
                                 "bs_operation_init");
}

}  // namespace

Fields Fields::SetIn(const bs_operation& operation) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&operation);
  uint32_t bits = 0;
  // Unrolled, since every operation pays for it.
  const auto look = [&]<size_t at>() {
    std::conditional_t<kPlaces[at].size_bytes == 4, uint32_t, uint64_t> value;
    std::memcpy(&value, bytes + kPlaces[at].offset, sizeof(value));
    bits |= static_cast<uint32_t>(value != 0) << at;
  };
  [&]<size_t... at>(std::index_sequence<at...>) {
    (look.template operator()<at>(), ...);
  }(std::make_index_sequence<kPlaces.size()>());
  return Fields(bits);
}

const char* Fields::first_name() const {
  return kPlaces[static_cast<size_t>(std::countr_zero(bits_))].name;
}

Result<const bs_operation*> OperationOf(const bs_operation* given, bs_operation* room) {
  const size_t given_bytes = given->struct_bytes;
  if (given_bytes == sizeof(bs_operation)) return given;
  if (given_bytes < offsetof(bs_operation, key) || given_bytes > kMostBytes ||
      given_bytes % sizeof(uint64_t) != 0) {
    return Unsized(given_bytes);
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(given);
  const auto is_set = [](std::byte byte) { return byte != std::byte{0}; };
  if (given_bytes > sizeof(*room) &&
      std::any_of(bytes + sizeof(*room), bytes + given_bytes, is_set)) {
    return Status::InvalidArgument(
        "a field behind the first " + std::to_string(sizeof(*room)) +
        " bytes of bs_operation is set, and this library knows no more: leave it 0, or take the "
        "library that the program was built for");
  }
  *room = bs_operation{};
  std::memcpy(room, given, std::min(given_bytes, sizeof(*room)));
  return room;
}

}  // namespace bs::capi
