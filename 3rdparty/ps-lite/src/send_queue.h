// SendQueue: messages that wait to leave for one peer.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/check.h"
#include "ps/message.h"

namespace ps {

// Larger priorities leave first, then in the order of Add.  Confined to the owner's executor; as
// long as its owner lets it become.
class SendQueue {
 public:
  bool empty() const { return messages_.empty(); }
  void Add(Message message) {
    const Place place{-int64_t{message.meta.priority}, next_number_++};
    messages_.emplace(place, std::move(message));
  }
  // The one that leaves next; valid until Add or Take.  REQUIRES: not empty.
  Message* first() {
    BS_CHECK(!empty());
    return &messages_.begin()->second;
  }
  Message Take() {
    Message message = std::move(*first());
    messages_.erase(messages_.begin());
    return message;
  }

 private:
  using Place = std::pair<int64_t, uint64_t>;

  std::map<Place, Message> messages_;
  uint64_t next_number_ = 0;
};

}  // namespace ps
