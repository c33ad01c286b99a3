// Sixteen floats: a mark, key, size, partition size (four each), dtype, scale, and one zero.
#include "backend/kvstore/store_header.h"

#include <array>
#include <cstring>

#include "base/check.h"

namespace bs::backend {
namespace {

constexpr float kMark = 31337.0F;
constexpr unsigned kWordBits = 16;
constexpr uint64_t kWordMask = 0xffff;
constexpr size_t kWords = 4;  // of a 64-bit number
constexpr size_t kKeyAt = 1, kSizeAt = 5, kPartAt = 9, kDTypeAt = 13, kScaleAt = 14;

using Floats = std::array<float, kStoreHeaderBytes / sizeof(float)>;

void Put(uint64_t number, size_t at, Floats* floats) {
  for (size_t i = 0; i < kWords; ++i) {
    floats->at(at + i) = static_cast<float>((number >> (kWordBits * i)) & kWordMask);
  }
}

bool Fits(float word) { return word >= 0.0F && word <= static_cast<float>(kWordMask); }

std::optional<uint64_t> Take(const Floats& floats, size_t at) {
  uint64_t number = 0;
  for (size_t i = 0; i < kWords; ++i) {
    const float word = floats.at(at + i);
    if (!Fits(word)) return std::nullopt;
    number |= static_cast<uint64_t>(word) << (kWordBits * i);
  }
  return number;
}

}  // namespace

std::vector<std::byte> Encode(const StoreHeader& header) {
  Floats floats{};
  floats[0] = kMark;
  Put(header.key, kKeyAt, &floats);
  Put(header.size_bytes, kSizeAt, &floats);
  Put(header.partition_bytes, kPartAt, &floats);
  floats[kDTypeAt] = static_cast<float>(header.dtype);
  floats[kScaleAt] = static_cast<float>(header.scale);
  std::vector<std::byte> bytes(kStoreHeaderBytes);
  std::memcpy(bytes.data(), floats.data(), bytes.size());
  return bytes;
}

std::optional<StoreHeader> DecodeStoreHeader(std::span<const std::byte> bytes) {
  Floats floats{};
  if (bytes.size() != kStoreHeaderBytes) return std::nullopt;
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  const auto key = Take(floats, kKeyAt);
  const auto size_bytes = Take(floats, kSizeAt);
  const auto partition_bytes = Take(floats, kPartAt);
  const float dtype = floats[kDTypeAt];
  const float scale = floats[kScaleAt];
  if (floats[0] != kMark || !key || !size_bytes || !partition_bytes) return std::nullopt;
  if (!Fits(dtype) || !Fits(scale)) return std::nullopt;
  return StoreHeader{*key, *size_bytes, *partition_bytes, static_cast<uint32_t>(dtype),
                     static_cast<uint32_t>(scale)};
}

}  // namespace bs::backend
