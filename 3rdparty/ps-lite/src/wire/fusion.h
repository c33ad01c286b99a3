// Fusion: small native messages that wait for the same peer travel as a single message.
//
// PROTOCOL.md, "Fused messages", has the format.  Pure functions, thread-safe; TakeApart never
// aborts whatever the bytes are.  (The field's term; Horovod fuses tensors of one collective
// operation, here each keeps its own request and answer.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "ps/message.h"

namespace ps {

// A receiver refuses more messages in a fused message.
inline constexpr size_t kMostFused = 32;
inline constexpr uint64_t kMostFusedBytes = 64U << 10U;  // of their payloads together

// True if the message may be part of a fused message.  It is a push, pull or push-pull of native
// nodes, or a response to such a request, with at most one data frame.
bool CanFuse(const Message& message);
// Bytes of its data frames.
uint64_t DataBytes(const Message& message);

// The meta of the message that carries `messages`.  Its only data frame, left out if it were empty,
// is their payloads in their order.  REQUIRES: CanFuse of each, 2 to kMostFused.
Meta FusedMeta(std::span<const Message> messages);

bool IsFused(const Meta& meta);
// The messages that a fused message carries, in their order; their frames share its memory, which
// goes when the last of them does.  kInvalidArgument, with the fault.  REQUIRES: IsFused.
bs::Result<std::vector<Message>> TakeApart(Message message);

// Gives `take` the message, or the messages that it carries, or the reason why it gets neither:
// only nodes of the job (`known`) may fuse.  Returns how often `take` was called, or 1.
size_t HandOut(Message message, bool known, const std::function<void(bs::Result<Message>)>& take);

}  // namespace ps
