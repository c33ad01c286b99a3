// Announcer: the open copies, and one timer that repeats them all.
#include "membership/coordinator/announcer.h"

#include <utility>

namespace ps {

void Announcer::Announce(const std::vector<int32_t>& receivers, const Meta& meta, bs::Task done) {
  // Shared by the copies: see Copy.
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

void Announcer::Confirm(int32_t receiver, uint64_t sequence) {
  const auto it = open_.find(sequence);
  if (it != open_.end() && it->second.receiver == receiver) End(it);
}

void Announcer::Forget(int32_t receiver) {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto copy = it++;
    if (copy->second.receiver == receiver) End(copy);
  }
}

void Announcer::Restart(bs::Duration retry_interval) {
  open_.clear();
  repeater_.Stop();
  retry_interval_ = retry_interval;
}

void Announcer::End(std::map<uint64_t, Copy>::iterator copy) {
  const std::shared_ptr<Event> event = copy->second.event;
  open_.erase(copy);
  if (open_.empty()) repeater_.Stop();
  if (--event->open == 0) Settle(scope_, event.get());
}

void Announcer::Settle(TaskScope* scope, Event* event) {
  if (event->done) scope->Post(std::move(event->done));
}

}  // namespace ps
