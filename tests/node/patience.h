// How long the tests of this folder wait for another node.
#pragma once

#include <chrono>

#include "base/types.h"

namespace bs::node {

inline constexpr Duration kPatience = std::chrono::seconds(60);

}  // namespace bs::node
