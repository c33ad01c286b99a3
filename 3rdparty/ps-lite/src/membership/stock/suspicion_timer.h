// SuspicionTimer: peers that may wait for a message which was lost, while we may wait for them.
//
// For peers that send each message once: when a connection with one ends, nothing tells whether
// something was lost with it.  Who goes on sends again; who waits for what was lost does not.
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
  // `lost` is called once for a peer, outside of all calls here, and it is forgotten: when nothing
  // of it has come for `patience`.
  using Lost = std::function<void(int32_t peer, const std::string& why)>;

  SuspicionTimer(TaskScope* scope, bs::Duration patience, Lost lost);
  SuspicionTimer(const SuspicionTimer&) = delete;
  SuspicionTimer& operator=(const SuspicionTimer&) = delete;
  ~SuspicionTimer() = default;

  // A connection with the peer has ended: from now on it is watched.
  void Begin(int32_t peer);
  // Something of a peer has come, watched or not.
  void OnHeard(int32_t peer);
  // Another process has the peer's id from now on, or none.
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
