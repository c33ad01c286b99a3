// Guarded: exceptions of the standard library become a Status.
#pragma once

#include <exception>
#include <new>

#include "base/status.h"

namespace bs {

// Returns the result of `body`.  kResourceExhausted if it throws: memory, threads or descriptors
// have run out.
template <typename F>
Status Guarded(F body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted("no memory");
  } catch (const std::exception& e) {
    return Status::ResourceExhausted(e.what());
  }
}

}  // namespace bs
