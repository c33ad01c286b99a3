// MemberContext: the state that the parts of a member share.
//
// The parts are Member::Impl (joins, takes part, leaves), Contacts (the nodes that the member works
// with) and StockPeers (the nodes that are MXNet's own).  Each owns the state that it alone needs;
// Member::Impl changes the shared fields.
//
// Confined to the executor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/limited_log.h"
#include "membership/control_body.h"
#include "membership/member/member_table.h"
#include "membership/task_scope.h"
#include "ps/membership.h"
#include "wire/control.h"

namespace ps {

struct MemberContext {
  MemberContext(const MembershipOptions& member_options, Transport* member_transport,
                bs::Executor* executor, const bs::Logger& logger)
      : options(member_options),
        transport(member_transport),
        log(logger),
        scope(executor),
        limited_log(executor, logger),
        next_sequence(static_cast<uint64_t>(executor->Now().time_since_epoch().count()) + 1) {
    own.role = options.role;
    own.hostname = options.node_host;
    own.link_rate = options.link_rate;
  }
  MemberContext(const MemberContext&) = delete;
  MemberContext& operator=(const MemberContext&) = delete;
  ~MemberContext() = default;

  bool over() const { return IsOver(state); }
  bool closed() const { return state == MemberState::kClosed; }
  bool takes_part() const { return TakesPart(state); }
  // For native data.
  bool OfAnotherJob(const Extension& data) const { return data.job != JobMark(job.value_or(0)); }
  uint64_t NextSequence() { return next_sequence++; }
  // Sends the message to the scheduler node.  A native message gets the job's number and this
  // node's incarnation.
  void SendControl(Meta meta, MemberBody body = {}) {
    Message message;
    message.peer = kSchedulerId;
    message.meta = std::move(meta);
    if (message.meta.native()) {
      body.job = job.value_or(0);
      body.incarnation = view.incarnation;
      message.meta.extension.body = Encode(body);
    }
    transport->Send(std::move(message));
  }
  // Logs a message that is not taken.
  void Drop(int32_t peer, const std::string& why) {
    limited_log.Warning("dropped a message from " + DescribeSender(peer) + ": " + why);
  }

  const MembershipOptions options;
  Transport* const transport;
  const bs::Logger log;
  TaskScope scope;
  bs::LimitedLog limited_log;
  Member::Handler handler;  // set by Start

  MemberState state = MemberState::kRegistering;
  Node own;                      // with the id once known
  std::optional<uint64_t> job;   // its number, from the response to the registration
  View view;                     // once the list has come
  bool stock_scheduler = false;  // the scheduler node is MXNet's own
  bool scheduler_lost = false;
  bool joined_final = false;  // this node waits in the final barrier, or has waited
  // Grows from one member of an address to the next: a late repeat of an earlier member does not
  // count for the present member.
  uint64_t next_sequence;
};

}  // namespace ps
