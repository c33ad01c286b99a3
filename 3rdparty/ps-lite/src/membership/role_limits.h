// What a node may be sent, by its role and by who sends it: the one table of it (PROTOCOL.md,
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

// Of any frame of anybody.
constexpr uint64_t MostFrameBytes(Role receiver) {
  return receiver == Role::kScheduler ? kMaxMetaBytes : kMaxFrameBytes;
}

}  // namespace ps
