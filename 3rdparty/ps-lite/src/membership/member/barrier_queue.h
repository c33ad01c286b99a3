// BarrierQueue: the barriers that this node waits in, one after another.
//
// It asks the scheduler node for the first barrier, again and again until that ends, and bounds
// the wait.  Confined to the scope's executor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "membership/task_scope.h"
#include "ps/membership.h"

namespace ps {

class BarrierQueue {
 public:
  struct Limit {
    bs::Duration time{};
    const char* setting = "";  // has the time
  };
  struct Call {
    int32_t group = 0;
    bool last = false;             // the final barrier: ended by the job's shutdown
    bool repeats = true;           // false for a stock scheduler node, which counts each request
    std::optional<Limit> limit{};  // of the wait, from the first request on
    StatusCallback done{};         // may be empty
  };
  struct Hooks {
    // A number that no other request of this node has.
    std::function<uint64_t()> next_sequence;
    // Sends the request for a barrier.
    std::function<void(const Call& call, uint64_t sequence)> send;
    // Runs a callback later, never inside.
    std::function<void(StatusCallback done, const bs::Status& status)> complete;
  };

  // `scope` must outlive the queue.
  BarrierQueue(TaskScope* scope, bs::Duration retry_interval, Hooks hooks);
  BarrierQueue(const BarrierQueue&) = delete;
  BarrierQueue& operator=(const BarrierQueue&) = delete;
  ~BarrierQueue() { StopWaiting(); }

  // Waits in a barrier once those before it have ended.
  void Add(Call call);
  bool empty() const { return calls_.empty(); }
  // This node waits in the final barrier.
  bool in_last() const { return !empty() && calls_.front().last; }
  // The scheduler node's responses to a request; ignored if it is not that of the first barrier.
  void OnEnd(uint64_t sequence, const bs::Status& status);
  void OnWaiting(uint64_t sequence, const std::string& waits_for);
  // REQUIRES: not empty().
  void EndFirst(const bs::Status& status);
  void EndAll(const bs::Status& status);

 private:
  bool IsFirst(uint64_t sequence) const { return !empty() && sequence == sequence_; }
  void Begin();
  void OnLate(const Limit& limit);
  void StopWaiting();

  TaskScope* const scope_;
  const bs::Duration retry_interval_;
  const Hooks hooks_;
  Repeater retry_;
  bs::TimerId timer_ = 0;
  std::deque<Call> calls_;
  uint64_t sequence_ = 0;  // of the first call's request
  std::string waits_for_;  // the nodes that the first call misses, as the scheduler node last said
};

}  // namespace ps
