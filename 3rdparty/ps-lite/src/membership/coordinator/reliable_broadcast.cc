// ReliableBroadcast: the open copies, and one timer that repeats them all.
#include "membership/coordinator/reliable_broadcast.h"

#include <utility>

namespace ps {

void ReliableBroadcast::Send(const std::vector<int32_t>& receivers, const Meta& meta,
                             bs::Task done) {
  // Shared by the copies; see Copy.
  const auto event = std::make_shared<Event>(Event{receivers.size(), std::move(done)});
  if (receivers.empty()) {
    Settle(scope_, event.get());
    return;
  }
  if (open_.empty()) {
    repeater_.Start(retry_interval_, [this] {
      for (const auto& [sequence, copy] : open_) send_(copy.receiver, copy.meta);
    });
  }
  for (const int32_t receiver : receivers) {
    Meta own = meta;
    own.extension.sequence = next_sequence_++;
    send_(receiver, own);
    open_.emplace(own.extension.sequence, Copy{receiver, own, event});
  }
}

void ReliableBroadcast::Confirm(int32_t receiver, uint64_t sequence) {
  const auto it = open_.find(sequence);
  if (it != open_.end() && it->second.receiver == receiver) End(it);
}

void ReliableBroadcast::Forget(int32_t receiver) {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto copy = it++;
    if (copy->second.receiver == receiver) End(copy);
  }
}

void ReliableBroadcast::Restart(bs::Duration retry_interval) {
  open_.clear();
  repeater_.Stop();
  retry_interval_ = retry_interval;
}

void ReliableBroadcast::End(std::map<uint64_t, Copy>::iterator copy) {
  const std::shared_ptr<Event> event = copy->second.event;
  open_.erase(copy);
  if (open_.empty()) repeater_.Stop();
  if (--event->open == 0) Settle(scope_, event.get());
}

void ReliableBroadcast::Settle(TaskScope* scope, Event* event) {
  if (event->done) scope->Post(std::move(event->done));
}

}  // namespace ps
