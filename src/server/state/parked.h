// ParkedCalls: requests that wait for something other workers do, at most one of each worker.
//
// Not thread-safe: confined to the executor of its owner.  Bounded by the number of workers (two
// ids of each rank at most: its own and an attached one).  Every parked request is answered once:
// by its owner after TakeAll, or here when a newer one replaces it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bytescheduler/server_options.h"
#include "protocol/call.h"

namespace bs::server {

class ParkedCalls {
 public:
  // Says for whom a call waits.
  using Whom = std::function<std::string(const protocol::Call&)>;

  // Parks `call`.  A repeat of the one that is parked (same sequence) is told through `send` that
  // it is alive and for whom it waits; of two different ones of a worker the newer stays and the
  // older is refused.
  void Park(protocol::Call call, const Whom& whom, const SendFn& send);
  // The next Park of a worker that has none parked needs no memory.
  void MakeRoom();
  // All of them, highest priority first, equal ones in the order in which they came; none is left.
  std::vector<protocol::Call> TakeAll();
  // Refuses all of them with `why`.
  void RefuseAll(const Status& why, const SendFn& send);
  // Forgets those of a rank that is gone: nobody is there to be answered.
  void Forget(int32_t rank);
  bool empty() const { return calls_.empty(); }

 private:
  std::vector<protocol::Call> calls_;  // as TakeAll gives them
};

}  // namespace bs::server
