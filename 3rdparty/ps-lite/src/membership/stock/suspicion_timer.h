// SuspicionTimer: finds peers that wait for a lost message while other nodes wait for them.
//
// For peers that send each message once: after a connection ends, no sign tells whether a message
// was lost with it.  A peer that goes on sends again; a peer that waits for a lost message is
// silent.
//
// Confined to the scope's executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "membership/task_scope.h"

namespace ps {

class SuspicionTimer {
 public:
  // Called once for a suspected peer from which nothing has come for `patience`.  The peer is
  // forgotten then.  Never called inside another call here.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  SuspicionTimer(TaskScope* scope, bs::Duration patience, Lost lost);
  SuspicionTimer(const SuspicionTimer&) = delete;
  SuspicionTimer& operator=(const SuspicionTimer&) = delete;
  ~SuspicionTimer() = default;

  // A connection with the peer has ended: it is suspected from now on.
  void Begin(int32_t peer);
  // A message of a peer has come, suspected or not.
  void OnHeard(int32_t peer);
  // From now on another process has the peer's id, or none has.
  void Forget(int32_t peer);

 private:
  struct Suspicion {
    bs::TimePoint heard{};
    bs::TimerId timer = 0;
  };

  void Arm(int32_t peer, Suspicion* suspicion);
  void OnDue(int32_t peer);

  TaskScope* const scope_;
  const bs::Duration patience_;
  const Lost lost_;
  std::map<int32_t, Suspicion> suspicions_;
};

}  // namespace ps
