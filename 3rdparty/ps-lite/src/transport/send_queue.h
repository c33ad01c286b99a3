// SendQueue: messages that wait to leave for a peer.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/check.h"
#include "ps/message.h"

namespace ps {

// Larger priorities leave first, then in the order of Add.  Confined to the owner's executor.  Not
// bounded here: the owner looks at waiting_bytes before Add.
class SendQueue {
 public:
  bool empty() const { return messages_.empty(); }
  // About how many bytes of memory the messages here keep from being freed.  Frames of native
  // messages count only with keeps_memory: most show rounds, of which a key has two in any case.
  uint64_t waiting_bytes() const { return waiting_bytes_; }
  // The share of a message in that.
  static uint64_t BytesOf(const Message& message) {
    const Meta& meta = message.meta;
    uint64_t bytes = kMessageBytes + meta.body.size() + meta.extension.text.size() +
                     meta.extension.body.memory();
    if (meta.native() && !message.keeps_memory) return bytes;
    for (const Frame& frame : message.data) bytes += frame.size();
    return bytes;
  }
  void Add(Message message) {
    const uint64_t bytes = BytesOf(message);
    waiting_bytes_ += bytes;
    const Place place{-int64_t{message.meta.priority}, next_number_++};
    messages_.emplace(place, Waiting{std::move(message), bytes});
  }
  // Goes before all other messages of its priority: it was taken too early.
  void PutBack(Message message) {
    const uint64_t bytes = BytesOf(message);
    waiting_bytes_ += bytes;
    const Place place{-int64_t{message.meta.priority}, --first_number_};
    messages_.emplace(place, Waiting{std::move(message), bytes});
  }
  // The message that leaves next; valid until Add or Take.  The caller may empty it before Take.
  // REQUIRES: not empty.
  Message* first() {
    BS_CHECK(!empty());
    return &messages_.begin()->second.message;
  }
  Message Take() {
    Message message = std::move(*first());
    waiting_bytes_ -= messages_.begin()->second.bytes;
    messages_.erase(messages_.begin());
    return message;
  }

 private:
  static constexpr uint64_t kMessageBytes = 1U << 10U;  // of a message without text and frames
  using Place = std::pair<int64_t, int64_t>;
  struct Waiting {
    Message message;
    uint64_t bytes;  // its share of waiting_bytes_
  };

  std::map<Place, Waiting> messages_;
  uint64_t waiting_bytes_ = 0;
  int64_t next_number_ = 0;
  int64_t first_number_ = 0;
};

}  // namespace ps
