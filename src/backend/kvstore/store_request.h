// StoreRequest: an operation on a stock store, and how it is begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend {

struct StoreRequest {
  enum class What : uint8_t {
    kPush = 0,      // the first of its key: the value
    kPull = 1,      // the value as it is now
    kPushPull = 2,  // adds to the round; the sum
  };
  What what = What::kPull;
  int32_t store_key = 0;
  DType dtype = DType::kFloat32;
  Priority priority = 0;
  uint64_t size_bytes = 0;
  std::span<const std::byte> in{};  // the pushed bytes; valid during the call only
};

// Takes the end of an operation and the pulled bytes, which are valid until the next operation on
// that key; empty for a push or an error.
using StoreDone = UniqueFunction<void(const Status&, std::span<const std::byte>)>;
// Begins an operation; `done` runs once, on the worker's executor, never inside the call.
using StoreFn = std::function<void(const StoreRequest&, StoreDone done)>;

}  // namespace bs::backend
