// ReliableBroadcast: repeats control messages until each receiver has confirmed them.
//
// Confined to the scope's executor.  Bounded by receivers and open broadcasts; each node and event
// has at most one copy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "membership/task_scope.h"
#include "ps/message.h"

namespace ps {

class ReliableBroadcast {
 public:
  using SendFn = std::function<void(int32_t receiver, const Meta& meta)>;

  // `scope` must outlive the broadcast.
  ReliableBroadcast(TaskScope* scope, bs::Duration retry_interval, SendFn send)
      : scope_(scope), retry_interval_(retry_interval), send_(std::move(send)), repeater_(scope) {}
  ReliableBroadcast(const ReliableBroadcast&) = delete;
  ReliableBroadcast& operator=(const ReliableBroadcast&) = delete;
  ~ReliableBroadcast() = default;

  // Sends `meta`, with a sequence of its own for each receiver, until every receiver has confirmed
  // or is forgotten.  Then calls `done`, never inside a call here.
  void Send(const std::vector<int32_t>& receivers, const Meta& meta, bs::Task done);
  void Confirm(int32_t receiver, uint64_t sequence);
  // The receiver is gone: its confirmations are no longer needed.
  void Forget(int32_t receiver);
  // Drops every broadcast without calling its `done`.  From now on repeats come every
  // `retry_interval`.
  void Restart(bs::Duration retry_interval);

 private:
  struct Event {
    size_t open = 0;  // receivers that have not confirmed
    bs::Task done;
  };
  struct Copy {
    int32_t receiver = kEmpty;
    Meta meta;
    // Shared by the copies of a broadcast; the last confirmation ends it.
    std::shared_ptr<Event> event;
  };

  void End(std::map<uint64_t, Copy>::iterator copy);
  static void Settle(TaskScope* scope, Event* event);

  TaskScope* const scope_;
  bs::Duration retry_interval_;
  const SendFn send_;
  uint64_t next_sequence_ = 1;
  std::map<uint64_t, Copy> open_;  // by sequence
  Repeater repeater_;
};

}  // namespace ps
