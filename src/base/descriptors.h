// Descriptors: how many a process may still open, and errors that name the limit.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bs {

// The system's text for `error`, an errno.  For want of descriptors it also names the limit, its
// value and the command that raises it.
std::string SystemError(int error);

// kResourceExhausted unless this process may open `wanted` more descriptors.  `what` needs them, in
// the error, such as "this server".  Other threads may open some at any time.
Status CheckDescriptors(uint64_t wanted, std::string_view what);

}  // namespace bs
