// The parts of greetings, commands and frames; zmtp.cc reads them, zmtp_write.cc writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps {

inline constexpr size_t kGreetingBytes = 64;
inline constexpr size_t kMechanismAt = 12;
inline constexpr size_t kMechanismBytes = 20;
// Flags of a frame.
inline constexpr unsigned kMore = 1;
inline constexpr unsigned kLong = 2;
inline constexpr unsigned kCommand = 4;
inline constexpr unsigned kReference = 8;  // ours
inline constexpr uint64_t kLongestShort = 255;
// Properties and commands of shared memory (PROTOCOL.md).
inline constexpr std::string_view kMemory = "X-Memory";
inline constexpr std::string_view kMemoryVersion = "1";
inline constexpr std::string_view kMemoryOffer = "\x06MEMORY";
inline constexpr std::string_view kMemoryTaken = "\x0cMEMORY-TAKEN";
inline constexpr std::string_view kMemoryRefused = "\x0eMEMORY-REFUSED";
// The same of RDMA.
inline constexpr std::string_view kRdma = "X-Rdma";
inline constexpr std::string_view kRdmaVersion = "1";
inline constexpr std::string_view kRdmaOffer = "\x04RDMA";
inline constexpr std::string_view kRdmaTaken = "\x0aRDMA-TAKEN";
inline constexpr std::string_view kRdmaRefused = "\x0cRDMA-REFUSED";
inline constexpr size_t kReferenceBytes = 16;

inline unsigned ByteAt(std::span<const std::byte> bytes, size_t i) {
  return std::to_integer<unsigned>(bytes[i]);
}

inline std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline uint64_t ReadBigEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | std::to_integer<uint64_t>(byte);
  return value;
}

inline bs::Status NoZmtp(const std::string& what) {
  return bs::Status::InvalidArgument("no ZMTP: " + what);
}

}  // namespace ps
