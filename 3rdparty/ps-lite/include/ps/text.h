// Words for people that nodes and the code above them share.
//
// Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace ps {

// "60 s", "1.5 s", "20 ms".
std::string TextOf(bs::Duration duration);

// The most bytes of a goodbye's reason.
inline constexpr size_t kMaxReasonBytes = 1024;

// The beginning of `reason` that a goodbye carries; no character is cut in two.
std::string ShortReason(const std::string& reason);

// The status of calls that miss a worker which said goodbye: "worker 1 gave up: KeyError: 'x'", or
// "worker 1 left the job" where it gave no reason.
bs::Status LeftStatus(int32_t id, const std::string& reason);
// True for the status of a worker that left without a reason.
bool IsLeftStatus(const bs::Status& status);

}  // namespace ps
