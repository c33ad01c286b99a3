// What greetings, commands and frames are made of, for who writes and who reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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
// Of shared memory (PROTOCOL.md).
inline constexpr std::string_view kMemory = "X-Memory";
inline constexpr std::string_view kMemoryVersion = "1";
inline constexpr std::string_view kMemoryOffer = "\x06MEMORY";
inline constexpr std::string_view kMemoryTaken = "\x0cMEMORY-TAKEN";
inline constexpr std::string_view kMemoryRefused = "\x0eMEMORY-REFUSED";
inline constexpr size_t kReferenceBytes = 16;

}  // namespace ps
