// Goodbye: the message by which a node leaves, for a process that does not hold the node.
#pragma once

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

  // kInvalidArgument if `place` is no text of PlaceOf's.
  static bs::Result<Goodbye> From(const std::string& place);
};

}  // namespace ps
