// ServerUpdater: updates of weights by the process that hosts a server, such as Python.
//
// What a server cannot compute itself - any optimizer that arrives pickled - it hands to these
// functions.  A server runs both on `executor` alone, one call at a time, so they may block and
// take a lock of their language; nothing else of the server waits for them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "base/executor.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"

namespace bs {

// One update of one array.  All memory is valid during the call only.
struct ServerUpdate {
  Key key = 0;
  // What rank 0 said about the key when it initialised it (its name and shape, JSON), as it came;
  // empty if it said nothing: then the array is flat and the key is its name.
  std::string_view about;
  DType dtype = DType::kFloat32;
  std::span<const std::byte> gradient;  // may start at any byte
  std::span<std::byte> weights;         // changed in place; aligned for dtype
  PushRates rates;
};

struct ServerUpdater {
  Executor* executor = nullptr;  // "bs-updater"; outlives the server.  Null: there is no updater
  // Later updates are made by the optimizer in `pickle`, with fresh state.  An error leaves the one
  // before in force; its message goes to the worker that asked.
  std::function<Status(std::string_view pickle)> set_optimizer;
  // After an error `weights` are not used; its message fails the push.
  std::function<Status(const ServerUpdate&)> update;
};

}  // namespace bs
