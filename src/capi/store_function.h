// CallStoreFunction: begins the operations of a WrappedStore through a bs_store_fn.
#pragma once

#include "bytescheduler/c_api.h"
#include "node/worker/wrapped_store.h"

namespace bs::capi {

// The function reports the end of each operation to `handle`, which must outlive the store.
inline node::WrappedStore::BeginFn CallStoreFunction(bs_store_fn begin, void* context,
                                                     bs_worker* handle) {
  return [begin, context, handle](const backend::StoreRequest& request, uint64_t token) {
    const bs_store_request what{.what = static_cast<int>(request.what),
                                .store_key = request.store_key,
                                .dtype = static_cast<int>(request.dtype),
                                .priority = request.priority,
                                .size_bytes = request.size_bytes,
                                .in = request.in.data(),
                                .token = token};
    begin(context, handle, &what);
  };
}

}  // namespace bs::capi
