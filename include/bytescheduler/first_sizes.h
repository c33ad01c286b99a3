// Partition and credit with which a job begins; they suit a link of 1 Gbit/s.
//
// The table of settings and bytescheduler/_settings.py repeat them.
#pragma once

#include <cstdint>

namespace bs {

inline constexpr uint64_t kFirstPartitionBytes = uint64_t{128} << 10U;
inline constexpr uint64_t kFirstCreditBytes = uint64_t{512} << 10U;

}  // namespace bs
