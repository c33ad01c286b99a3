// PendingCalls: requests that wait for other workers, at most one of each worker.
//
// Not thread-safe: confined to the executor of its owner.  Bounded by the number of workers (two
// ids of each rank at most: its own and an attached worker's).  Every pending request is answered
// once: by its owner after TakeAll, or here when a newer request replaces it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "protocol/call.h"
#include "server/state/server_options.h"

namespace bs::server {

class PendingCalls {
 public:
  // Names the workers that a call waits for.
  using Whom = std::function<std::string(const protocol::Call&)>;

  // Keeps `call`.  A repeat of a pending call (same sequence) gets a pending response through
  // `send` that names the awaited workers.  Of two different calls of a worker the newer stays and
  // the older is refused.
  void Add(protocol::Call call, const Whom& whom, const SendFn& send);
  // The next Add for a worker without a pending call needs no memory.
  void MakeRoom();
  // All of them, highest priority first, equal priorities in the order of arrival; none is left.
  std::vector<protocol::Call> TakeAll();
  // Refuses all of them with `why`.
  void RefuseAll(const Status& why, const SendFn& send);
  // Forgets the calls of a rank that is gone; they need no response.
  void Forget(int32_t rank);
  bool empty() const { return calls_.empty(); }

 private:
  std::vector<protocol::Call> calls_;  // as TakeAll gives them
};

}  // namespace bs::server
