// WrappedStore: operations on the application's own store that have not ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "backend/kvstore/store_request.h"
#include "base/executor.h"
#include "base/loop_thread.h"
#include "base/status.h"

namespace bs::node {

// Confined to its executor, but for OnDone.
class WrappedStore {
 public:
  // Begins an operation on the store.  Runs on the executor, or on the thread "bs-kvstore" if it
  // `blocks` until the operation is over, so that deadlines still pass.  OnDone(token) reports the
  // end.
  using BeginFn = std::function<void(const backend::StoreRequest&, uint64_t token)>;

  // `executor` outlives this.
  WrappedStore(Executor* executor, BeginFn begin, bool blocks);
  WrappedStore(const WrappedStore&) = delete;
  WrappedStore& operator=(const WrappedStore&) = delete;
  // REQUIRES: not busy().
  ~WrappedStore() = default;

  // `done` runs on the executor when the operation is over.
  void Begin(const backend::StoreRequest& request, backend::StoreDone done);
  // An operation is over; `value` has the pulled bytes, which stay valid until `done` has run.
  // Any thread, also inside BeginFn.
  void OnDone(uint64_t token, Status status, const std::byte* value);
  // True while operations have not ended.
  bool busy() const { return !open_.empty(); }
  // Runs `idle` as soon as no operation is open, perhaps inside this call.  A later call replaces
  // an earlier call.
  void WhenIdle(Task idle);

 private:
  struct Open {
    uint64_t size_bytes;
    backend::StoreDone done;
  };

  Executor* const executor_;
  const BeginFn begin_;
  uint64_t next_token_ = 1;
  std::map<uint64_t, Open> open_;
  Task idle_;                                 // empty: nothing waits
  const std::unique_ptr<LoopThread> thread_;  // null unless calls block
};

}  // namespace bs::node
