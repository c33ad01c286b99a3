// CarryThrough: a CarriedNode's operations as calls of the C API's carry function.
#pragma once

#include "bytescheduler/c_api.h"
#include "node/carried_node.h"

namespace bs::api {

// `handle` is what the function is told to answer to; it must outlive the node.
inline CarriedNode::Carry CarryThrough(bs_carry_fn carry, void* context, bs_worker* handle) {
  return [carry, context, handle](const worker::StoreRequest& request, uint64_t token) {
    const bs_carry what{.what = static_cast<int>(request.what),
                        .store_key = request.store_key,
                        .dtype = static_cast<int>(request.dtype),
                        .priority = request.priority,
                        .size_bytes = request.size_bytes,
                        .in = request.in.data(),
                        .token = token};
    carry(context, handle, &what);
  };
}

}  // namespace bs::api
