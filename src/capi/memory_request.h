// The engine's terms for a bs_kept_memory of the C API.
//
// Pure functions.  Their results refer to the memory; OwnOf asks for its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bytescheduler/c_api.h"
#include "node/kept_memory.h"

namespace bs::capi {

inline node::KeptMemory::Memory MemoryOf(const bs_kept_memory& request) {
  return {.key = request.key,
          .use = request.filled == 0 ? ps::Lending::kSent : ps::Lending::kFilled,
          .bytes = {static_cast<std::byte*>(request.memory), request.size_bytes},
          .storage = {reinterpret_cast<uintptr_t>(request.storage), request.storage_bytes}};
}

// `request` must outlive the function that this returns, not the owner that it makes.
inline node::KeptMemory::OwnFn OwnOf(const bs_kept_memory& request) {
  return [&request]() -> std::shared_ptr<void> {
    void* const owner = request.own(request.context);
    if (owner == nullptr) return nullptr;
    return {owner, request.disown};
  };
}

}  // namespace bs::capi
