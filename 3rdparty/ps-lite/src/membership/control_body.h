// The bodies of native control messages, one type for each direction (PROTOCOL.md, "Control
// messages of native nodes").
//
// Pure functions, thread-safe.  Decoding never aborts whatever the bytes are; a missing field has
// its default.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ps/body.h"
#include "ps/message.h"

namespace ps {

// From a member to the scheduler node.
struct MemberBody {
  uint64_t job = 0;               // number of the job that the member is in; 0 before it knows
  uint64_t incarnation = 0;       // of the member
  uint32_t lost_incarnation = 0;  // kVacate: of the worker that the member has lost
  // kRegister: that the member asks for, -1: any.  kAttach: of the stock worker beside it.
  // kVouch: how many workers live.
  int32_t rank = -1;
  std::string settings{};  // kRegister, kAttach: MembershipOptions::settings
  bool yields = false;     // kRegister: MembershipOptions::yields

  bool operator==(const MemberBody&) const = default;
};

// From the scheduler node to a member.
struct SchedulerBody {
  uint64_t job = 0;               // number of the job
  uint64_t incarnation = 0;       // of the worker that the message is about; it may be the receiver
  uint64_t next_incarnation = 0;  // kVacate: of the worker that gets the free place next
  bool native = false;            // kVacate: whether the lost worker was native
  int32_t rank = -1;              // of the node that the message is about

  bool operator==(const SchedulerBody&) const = default;
};

// `op` is the message's.  A field of another op is neither written nor read.
Body Encode(const MemberBody& body);
Body Encode(Op op, const SchedulerBody& body);
// kInvalidArgument if the bytes are no protobuf fields.  Unknown fields are skipped.
bs::Result<MemberBody> DecodeMemberBody(const Body& body);
bs::Result<SchedulerBody> DecodeSchedulerBody(Op op, const Body& body);

}  // namespace ps
