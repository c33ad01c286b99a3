// The limits of messages, by the roles of receiver and sender: their only table (PROTOCOL.md,
// "Limits").  Transports ask through their handler; libzmq, which cannot, has MostFrameBytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ps/message.h"
#include "wire/wire.h"

namespace ps {

// Bounds the data frames together of a message from a node of the job; other senders have
// kMaxStrangerBytes.  `announced` is the payload's size in the body of a native request to a
// server. Such a request has some room beyond, so that the server can refuse a small mistake by a
// response.
inline uint64_t MostDataBytes(Role receiver, const Meta& meta, uint64_t announced) {
  switch (receiver) {
    case Role::kScheduler:
      return kMaxStrangerBytes;  // no node sends it data
    case Role::kServer:
      if (meta.is_control) return kMaxStrangerBytes;
      if (!meta.native()) return kMaxMessageBytes;
      return std::min(std::max(announced, kMaxStrangerBytes), kMaxFrameBytes);
    case Role::kWorker:
      break;  // it has asked for the responses
  }
  return kMaxMessageBytes;
}

// Returns the bound of a frame from any sender.
constexpr uint64_t MostFrameBytes(Role receiver) {
  return receiver == Role::kScheduler ? kMaxMetaBytes : kMaxFrameBytes;
}

}  // namespace ps
