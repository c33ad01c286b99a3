// Words for people that nodes and the code above them share.
//
// Pure functions, thread-safe.
#pragma once

#include <string>

#include "base/types.h"

namespace ps {

// "60 s", "1.5 s", "20 ms".
std::string TextOf(bs::Duration duration);

}  // namespace ps
