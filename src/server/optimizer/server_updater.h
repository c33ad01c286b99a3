// ServerUpdater: updates of weights by the process that hosts a server, such as Python.
//
// A server hands updates that it cannot compute itself, such as updates of pickled optimizers, to
// these functions.  It runs both on `executor` alone, one call at a time.  So they may block and
// take a lock of their language; nothing else of the server waits for them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"

namespace bs {

// An update of an array.  All memory is the server's and valid during the call only.
struct ServerUpdate {
  Key key = 0;
  // Rank 0's description of the key (name and shape, JSON), unchecked, from its initialisation.
  // Empty without a description: then the array is flat and the key is its name.
  std::string_view about;
  DType dtype = DType::kFloat32;
  std::span<const std::byte> gradient;  // elements of dtype; may start at any byte
  std::span<std::byte> weights;         // as many elements; changed in place; aligned for dtype
  PushRates rates;
};

struct ServerUpdater {
  Executor* executor = nullptr;  // "bs-updater"; outlives the server.  Null: there is no updater
  // The optimizer in `pickle` makes the later updates, with fresh state.  After an error the
  // previous optimizer stays in force, and the message goes to the worker that asked.
  std::function<Status(std::string_view pickle)> set_optimizer;
  // Makes an update.  After an error the server does not use `weights`, and the push fails with the
  // message.
  std::function<Status(const ServerUpdate&)> update;
};

}  // namespace bs
