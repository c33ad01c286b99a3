// Takes the value out of a result that has one.
#pragma once

#include <utility>

#include "base/status.h"

namespace ps::test {

template <typename T>
T Take(bs::Result<T> result) {
  return std::move(result.value());
}

}  // namespace ps::test
