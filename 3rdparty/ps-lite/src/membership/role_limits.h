// The limits of messages, by the roles of receiver and sender: their only table (PROTOCOL.md,
// "Limits").  Transports ask through their handler; libzmq, which cannot, has MostFrameBytes.
#pragma once

#include <cstdint>

#include "ps/kv_server.h"
#include "ps/message.h"
#include "wire/wire.h"

namespace ps {

// Of the data frames together of a message from a node of the job.  Of anybody else:
// kMaxStrangerBytes.
inline uint64_t MostDataBytes(Role receiver, const Meta& meta) {
  switch (receiver) {
    case Role::kScheduler:
      return kMaxStrangerBytes;  // nobody has data for it
    case Role::kServer:
      return MostRequestBytes(meta);
    case Role::kWorker:
      break;  // it has asked for what comes
  }
  return kMaxMessageBytes;
}

// Returns the bound of a frame from any sender.
constexpr uint64_t MostFrameBytes(Role receiver) {
  return receiver == Role::kScheduler ? kMaxMetaBytes : kMaxFrameBytes;
}

}  // namespace ps
