// The messages to the scheduler node from a process that holds no node.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ps/membership.h"
#include "ps/message.h"

namespace ps {

// The place of a native node in its job, as text for another process of the host.
std::string PlaceOf(const View& view);

// The message to the scheduler node from the node that has a place.
struct Goodbye {
  int32_t id = kEmpty;  // of the node
  Message message;      // to the scheduler node

  // kInvalidArgument if `place` is no text of PlaceOf's.  With a `reason` the worker gave up, and
  // the job fails by it, also where the worker has said goodbye itself.
  static bs::Result<Goodbye> From(const std::string& place, const std::string& reason = {});
};

// The message by which a launcher says that `workers` live which have not registered.  Each
// launcher has a `token` of its own.
Message Vouch(int32_t workers, uint64_t token);

}  // namespace ps
