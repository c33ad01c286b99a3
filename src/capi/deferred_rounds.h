// DeferredRounds: push-pulls of a worker for tensors that are not ready yet.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/types.h"
#include "bytescheduler/c_api.h"

namespace bs::capi {

// Thread-safe.  Push-pulls that it starts may outlive the worker, so each bs_deferred shares it.
class DeferredRounds : public std::enable_shared_from_this<DeferredRounds> {
 public:
  // Returns a push-pull that Start starts and frees.  REQUIRES: CheckOperation is ok, and Close
  // comes later.
  bs_deferred* Defer(bs_worker* worker, const bs_operation& operation);

  // Starts it, unless Close came first.  Its callbacks get an error of the start.
  static void Start(bs_deferred* deferred);

  // Lets all that are deferred fail.  Start does nothing but free them from then on.
  void Close();

 private:
  Mutex mutex_;
  uint64_t count_ BS_GUARDED_BY(mutex_) = 0;
  struct Waiting {
    bs_operation operation{};
    bs_rates rates{};  // a copy, if the operation has some
  };
  std::map<uint64_t, Waiting> waiting_ BS_GUARDED_BY(mutex_);  // by their numbers

  void StartNow(const bs_deferred& deferred);
};

}  // namespace bs::capi

struct bs_deferred {
  const std::shared_ptr<bs::capi::DeferredRounds> owner;
  bs_worker* const worker;
  const uint64_t number;
  const bs::TimePoint since;
};
