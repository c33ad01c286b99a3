// StoreMembership: the membership of a worker over the application's own store, which has ranks and
// counts of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "backend/kvstore/kvstore_backend.h"
#include "base/loop_thread.h"
#include "config/config.h"
#include "job/membership.h"
#include "node/worker/wrapped_store.h"

namespace bs::node {

// Its executor is the thread "bs-worker".  It sends no message to other workers: it learns only
// that operations on the store end.  So the other workers miss a
// failed worker, and nothing tells them.
class StoreMembership final : public job::Membership {
 public:
  // `rank` of config.num_workers; `begin` and `blocks` are the arguments of WrappedStore.
  StoreMembership(const Config& config, int32_t rank, WrappedStore::BeginFn begin, bool blocks);
  // REQUIRES: Close() has returned ok.
  ~StoreMembership() override = default;

  WrappedStore* store() { return &store_; }
  // `backend` carries the barriers from now on; it lives until Close.  On the executor.
  void MeetBy(backend::KvstoreBackend* backend) { backend_ = backend; }

  Executor* executor() override { return &thread_; }
  // The view is the application's, so it is there at once.
  void Join(Handler handler) override;
  job::SharedView view() const override { return view_; }
  // kDeadlineExceeded after BYTESCHEDULER_STRAGGLER_TIMEOUT, which is a failure of the job.
  void Barrier(Done done) override;
  // Ends this worker's barriers only.
  void Fail(const Status& why) override { EndBarriers(why); }
  // If drained, waits up to BYTESCHEDULER_TIMEOUT for operations of the back end's own.
  void Leave(const Goodbye& goodbye, Done done) override;
  // Does not wait: an operation that has not ended is kUnavailable.
  Status Close() override;

 private:
  struct Meeting {
    Done done;
    TimerId deadline;
  };

  void FailLateBarrier();
  void EndBarriers(const Status& why);

  const job::SharedView view_;
  const Duration timeout_;
  const Duration straggler_timeout_;
  LoopThread thread_;  // ends last
  WrappedStore store_;
  // On the executor.
  Handler handler_;
  backend::KvstoreBackend* backend_ = nullptr;
  std::map<uint64_t, Meeting> barriers_;  // by number
  uint64_t next_barrier_ = 1;
};

}  // namespace bs::node
