// Arrays for the tests of sums: every kind of number of every dtype, at any address, under guard.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"

namespace bs::reduce {

inline constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                       DType::kUint8,   DType::kInt32,   DType::kInt8,
                                       DType::kInt64,   DType::kBfloat16};

using Bytes = std::vector<unsigned char>;

// The width of a floating-point dtype's fields; no fraction for integers.
struct FloatLayout {
  unsigned exponent_bits = 0;
  unsigned fraction_bits = 0;
};

inline FloatLayout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {8, 23};
    case DType::kFloat64:
      return {11, 52};
    case DType::kFloat16:
      return {5, 10};
    case DType::kBfloat16:
      return {8, 7};
    default:
      return {};
  }
}

// Half of them any bits; the others zeros, subnormals, infinities, NaNs of both kinds, the largest
// and the smallest numbers.
inline uint64_t RandomElement(DType dtype, std::mt19937_64& random) {
  const FloatLayout layout = LayoutOf(dtype);
  const uint64_t any = random();
  if (layout.fraction_bits == 0 || random() % 2 == 0) return any;
  const uint64_t max_exponent = (uint64_t{1} << layout.exponent_bits) - 1;
  const uint64_t max_fraction = (uint64_t{1} << layout.fraction_bits) - 1;
  const uint64_t exponents[] = {0, 0, 1, max_exponent - 1, max_exponent, any & max_exponent};
  const uint64_t fractions[] = {
      0, 1, max_fraction / 2, max_fraction / 2 + 1, max_fraction, random() & max_fraction};
  const uint64_t sign = random() % 2;
  return sign << (layout.exponent_bits + layout.fraction_bits) |
         exponents[random() % 6] << layout.fraction_bits | fractions[random() % 6];
}

inline Bytes RandomArray(DType dtype, size_t count, std::mt19937_64& random) {
  const size_t element_bytes = SizeOf(dtype);
  Bytes array(count * element_bytes);
  for (size_t i = 0; i < array.size(); i += element_bytes) {
    const uint64_t element = RandomElement(dtype, random);  // its low bytes: x86 and ARM agree
    std::memcpy(array.data() + i, &element, element_bytes);
  }
  return array;
}

// A copy of an array at an address of the given misalignment, between bytes that must not change.
class Guarded {
 public:
  Guarded(const Bytes& content, size_t misalignment)
      : storage_(content.size() + 4 * kGuardBytes, kCanary), size_bytes_(content.size()) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    begin_ = (kGuardBytes - address % kGuardBytes) + kGuardBytes + misalignment;
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }

  unsigned char* data() { return storage_.data() + begin_; }
  Bytes Content() { return Bytes(data(), data() + size_bytes_); }
  bool GuardsIntact() const {
    const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
    const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(storage_.begin(), begin, is_canary) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_bytes_), storage_.end(), is_canary);
  }

 private:
  static constexpr size_t kGuardBytes = 64;  // the widest vector; misalignments are below it
  static constexpr unsigned char kCanary = 0xa5;

  Bytes storage_;
  size_t size_bytes_;
  size_t begin_ = 0;
};

}  // namespace bs::reduce
