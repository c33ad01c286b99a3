// Member: a node in the job - barriers, heartbeats, losses, goodbye.
#include <algorithm>
#include <utility>

#include "membership/member/member_impl.h"
#include "membership/role_limits.h"
#include "ps/kv_server.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {

void Member::Impl::SendHeartbeat() {
  if (stock_scheduler_) {
    SendStockHeartbeat();
    return;
  }
  Meta meta = NativeControl(Command::kHeartbeat, Op::kState, NextSequence());
  meta.control.nodes = {own_};
  SetStatus(report_, &meta.extension);
  SendControl(std::move(meta));
  SendUnreachable();
}

void Member::Impl::SendUnreachable() {
  for (const auto& [id, neighbour] : neighbours_.all()) {
    if (neighbour.state != NeighbourState::kReported) continue;
    Meta meta = NativeControl(Command::kHeartbeat, Op::kVacate, NextSequence());
    meta.control.nodes = {own_, neighbour.node};
    meta.extension.text = neighbour.why;
    MemberBody body;
    body.lost_incarnation = static_cast<uint32_t>(neighbour.incarnation);
    SendControl(std::move(meta), std::move(body));
  }
}

void Member::Impl::CheckScheduler() {
  if (scheduler_lost_ || !pause_detector_) return;
  const bs::TimePoint now = scope_.Now();
  const bs::TimePoint since = std::max(last_word_, pause_detector_->LastPauseEnd(now));
  if (now < since + options_.heartbeat_timeout) return;
  reconnect_timer_.Forget(kSchedulerId);
  OnLost(kSchedulerId, SilentFor(options_.heartbeat_timeout));
}

void Member::Impl::Barrier(int32_t group, StatusCallback done) {
  const bool was_in = IsOver(state_);
  const bool closed = state_ == MemberState::kClosed;
  if (was_in || closed ||
      EnumSet<MemberState>{MemberState::kRegistering, MemberState::kStarting}.contains(state_)) {
    const auto over = failure_.ok() ? bs::Status::Unavailable("the job is over") : failure_;
    Complete(std::move(done), closed   ? bs::Status::Cancelled("the membership was closed")
                              : was_in ? over
                                       : bs::Status::FailedPrecondition("not in the job yet"));
    return;
  }
  BarrierQueue::Call call;
  call.group = group;
  call.repeats = !stock_scheduler_;
  call.limit = BarrierQueue::Limit{options_.straggler_timeout, "BYTESCHEDULER_STRAGGLER_TIMEOUT"};
  call.done = std::move(done);
  barriers_.Add(std::move(call));
}

void Member::Impl::JoinFinalBarrier() {
  const bool over = IsOver(state_) || state_ == MemberState::kClosed;
  if (joined_final_ || over || state_ == MemberState::kRegistering) return;
  joined_final_ = true;
  BarrierQueue::Call call;
  call.group = kEveryone;
  call.last = true;
  call.repeats = !stock_scheduler_;
  barriers_.Add(std::move(call));
}

void Member::Impl::SendBarrier(const BarrierQueue::Call& call, uint64_t sequence) {
  if (stock_scheduler_) return SendStockBarrier(call.group);
  Meta meta = NativeControl(Command::kBarrier, call.last ? Op::kLeave : Op::kNone, sequence);
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.control.barrier_group = call.group;
  SendControl(std::move(meta));
}

void Member::Impl::Leave(const std::string& reason, StatusCallback done) {
  if (state_ == MemberState::kClosed) {
    Complete(std::move(done), bs::Status::Cancelled("the membership was closed"));
    return;
  }
  StatusCallback before = std::exchange(leave_done_, std::move(done));
  if (leave_sequence_ == 0) leave_reason_ = ShortReason(reason);
  if (Apply(MemberEvent::kGoodbye)) return;
  Complete(std::exchange(leave_done_, std::move(before)),
           bs::Status::FailedPrecondition(HasLeft(state_) ? "said goodbye already"
                                                          : "not in the job yet"));
}

void Member::Impl::SayGoodbye() {
  leave_sequence_ = NextSequence();
  SendLeave();
  leave_retry_.Start(std::min(options_.retry_interval, kFarewellRetry), [this] { SendLeave(); });
  const bs::Duration patience = failure_.ok() ? options_.timeout : kFarewell;
  scope_.After(patience, [this, patience] {
    EndLeave(bs::Status::DeadlineExceeded("the scheduler node did not respond to our goodbye in " +
                                          TextOf(patience)));
  });
}

void Member::Impl::SendLeave() {
  Meta meta = NativeControl(Command::kNone, Op::kLeave, leave_sequence_);
  meta.extension.text = leave_reason_;
  SetStatus(report_, &meta.extension);
  SendControl(std::move(meta));
}

void Member::Impl::EndLeave(const bs::Status& status) { Apply(MemberEvent::kGoodbyeEnds, status); }

void Member::Impl::ReportFailure(const bs::Status& why) {
  if (state_ != MemberState::kRegistering && !TakesPart(state_)) return;
  report_ = why;
  if (view_.own_id != kEmpty) SendHeartbeat();
  Apply(MemberEvent::kOwnFailure, why);
}

void Member::Impl::SetLimits(Transport::Handler* handler) {
  handler->knows = [this](int32_t peer) { return Knows(peer); };
  handler->most_bytes = [this](int32_t, const Meta& meta) {
    const bool announces = own_.role == Role::kServer && meta.native() && !meta.is_control;
    const bool asks = announces && handler_.announced_bytes;
    return MostDataBytes(own_.role, meta, asks ? handler_.announced_bytes(meta.extension) : 0);
  };
  handler->on_overflow = [this](int32_t peer, const std::string& why) {
    reconnect_timer_.Forget(peer);
    if (IsBeside(peer)) return FailJob(LostStatus(beside_.at(peer), why));
    OnLost(peer, why);
  };
}

// A lost stock worker that is alive would wait for responses for ever, or go on alone.
void Member::Impl::TurnAway(const Message& message) {
  const int32_t id = message.peer;
  const bool stock_worker =
      own_.role == Role::kServer && !message.meta.native() && IdFitsRole(id, Role::kWorker);
  const Neighbour* const lost = stock_worker ? FindLost(id) : nullptr;
  if (lost == nullptr) {
    Drop(id, "data of a node that is not in the job");
    return;
  }
  if (lost->ends_sent > 0) return;
  log_.Warning(Describe(lost->node) + " was lost (" + lost->why +
               ") and asks for more: its process is told to end");
  TellTheEnd(id);
}

Neighbour* Member::Impl::FindLost(int32_t id) {
  const NeighbourState state = neighbours_.StateOf(id);
  const bool lost = state == NeighbourState::kLost || state == NeighbourState::kReported ||
                    state == NeighbourState::kVacant;
  return lost ? neighbours_.At(id) : nullptr;
}

// Repeated, because the worker does not read a new connection while it has our old connection.
void Member::Impl::TellTheEnd(int32_t id) {
  constexpr bs::Duration kPause = std::chrono::seconds(2);
  constexpr int kMostTold = 30;
  Neighbour* const lost = FindLost(id);
  if (lost == nullptr || lost->ends_sent == kMostTold) return;
  if (state_ != MemberState::kReady) return;
  ++lost->ends_sent;
  transport_->Connect(id, AddressOf(lost->node), own_.id);
  SendEnd(lost->node, lost->why);
  scope_.After(kPause, [this, id] { TellTheEnd(id); });
}

void Member::Impl::SendEnd(const Node& node, const std::string& why) {
  constexpr bs::Duration kLinger = std::chrono::seconds(1);
  transport_->Send(MakeStockWord(node.id, "lost " + Describe(node) + ": " + why));
  transport_->Send(MakeStockEnd(node.id));
  transport_->Disconnect(node.id, kLinger);
}

void Member::Impl::OnInboundEnded(int32_t id, bool torn) {
  const bool known = neighbours_.IsKnown(id) || (id == kSchedulerId && stock_scheduler_);
  inbound_.OnEnded(id, known && resends_.Heard(id) && TakesPart(state_),
                   torn && !resends_.SendsAgain(id));
  Suspect(id);
}

void Member::Impl::Suspect(int32_t id) {
  const bool stock_worker =
      neighbours_.IsKnown(id) && IdFitsRole(id, Role::kWorker) && resends_.Heard(id);
  const bool trains = state_ == MemberState::kReady && !joined_final_;
  if (own_.role == Role::kServer && stock_worker && trains) suspicion_timer_.Begin(id);
}

void Member::Impl::OnUnheard(int32_t id, const std::string& why) {
  if (joined_final_) return;  // stock nodes close after the final barrier
  reconnect_timer_.Forget(id);
  const Node* const node = neighbours_.FindKnown(id);
  // Else the attached worker notifies it.
  const bool alone = !neighbours_.IsKnown(AttachedId(RankOf(id)));
  if (node != nullptr && alone) SendEnd(Node(*node), why);
  OnLost(id, why);
}

void Member::Impl::OnLost(int32_t id, const std::string& why) {
  inbound_.Forget(id);
  suspicion_timer_.Forget(id);
  if (id == kSchedulerId) return OnSchedulerLost(why);
  if (const Node* const node = neighbours_.FindKnown(id)) {
    neighbours_.Apply(Node(*node), NeighbourEvent::kLost, {.why = why});
  }
}

void Member::Impl::OnSchedulerLost(const std::string& why) {
  const bs::Status lost = LostStatus(scheduler_, why);
  scheduler_lost_ = true;
  heartbeat_.Stop();
  EndLeave(ended_ ? bs::Status::Ok() : lost);
  Fail(lost);
}

void Member::Impl::OnUnconnected(int32_t id, const std::string& why) {
  if (IsBeside(id)) return OnUnconnectedBeside(id, why);
  const Node* const node = neighbours_.FindKnown(id);
  OnLost(id, node == nullptr ? why : attempts_.WhyLost(id, AddressOf(*node), why));
}

void Member::Impl::OnUnconnectedBeside(int32_t id, const std::string& why) {
  // Messages that wait for it would never leave, and their owners would never get the memory back.
  transport_->Disconnect(id, bs::Duration(0));
  if (!TakesPart(state_)) return;
  const Node& node = beside_.at(id);
  if (!attempts_.Reached(id)) {
    return FailJob(LostStatus(node, attempts_.WhyLost(id, AddressOf(node), why)));
  }
  // If it did not leave, servers find it lost in the same time, and the job fails by their reason.
  const bs::Duration patience = options_.reconnect_grace + options_.reason_patience;
  scope_.After(patience, [this, id] {
    if (!TakesPart(state_) || !handler_.on_worker_left) return;
    handler_.on_worker_left(RankOf(id), LeftStatus(id, ""));
  });
}

bool Member::Impl::Holds(NeighbourCondition condition, const Neighbour& neighbour) const {
  const Node& node = neighbour.node;
  switch (condition) {
    case NeighbourCondition::kAlways:
      return true;
    case NeighbourCondition::kNotMissed: {
      if (IsOver(state_) || HasLeft(state_)) return true;
      if (IsAttachedId(node.id)) return false;
      // Stock workers leave without a message; the scheduler node judges if they had finished.
      if (joined_final_) return true;
      // Its process has left, and ended without the destructor of MXNet's own store.
      return node.role == Role::kWorker &&
             neighbours_.StateOf(AttachedId(RankOf(node.id))) == NeighbourState::kLeft;
    }
    case NeighbourCondition::kReplaceable:
      // The scheduler node judges which is lost: the worker, which may be this node, or the server.
      return options_.rejoin_timeout > bs::Duration(0) && !stock_scheduler_ &&
             (node.role == Role::kWorker || state_ == MemberState::kReady);
  }
  return false;
}

void Member::Impl::Act(NeighbourAction action, Neighbour* neighbour,
                       const NeighbourDetails& details) {
  const int32_t id = neighbour->node.id;
  switch (action) {
    case NeighbourAction::kConnect:
      transport_->Connect(id, AddressOf(neighbour->node), own_.id);
      return reconnect_timer_.Watch(id);
    case NeighbourAction::kDrop:
      return DropLost(neighbour, details.why);
    case NeighbourAction::kReport:
      DropLost(neighbour, details.why);
      return SendUnreachable();
    case NeighbourAction::kFailJob:
      DropLost(neighbour, details.why);
      return FailJob(LostStatus(neighbour->node, details.why, options_.servers_in_workers));
    case NeighbourAction::kDropVacant:
      DropLost(neighbour, "its place is free for another");
      return NotifyOfVacant(id, details.native);
    case NeighbourAction::kVacate:
      return NotifyOfVacant(id, details.native);
    case NeighbourAction::kLetGo:
      transport_->Disconnect(id, bs::Duration(0));
      return NotifyOfGoodbye(id, details.why);
    case NeighbourAction::kRetire:
      return NotifyOfGoodbye(id, details.why);
  }
}

void Member::Impl::FailJob(const bs::Status& why) {
  if (!TakesPart(state_)) return;
  report_ = why;
  SendHeartbeat();
  Fail(why);
}

void Member::Impl::DropLost(Neighbour* neighbour, const std::string& why) {
  neighbour->why = why;
  neighbour->ends_sent = 0;
  // Messages that wait for it would never leave, and their owners would never get the memory back.
  transport_->Disconnect(neighbour->node.id, bs::Duration(0));
}

void Member::Impl::NotifyOfVacant(int32_t id, bool native) {
  scope_.Post([this, id, native] {
    if (handler_.on_worker_vacant) handler_.on_worker_vacant(id, native);
  });
}

void Member::Impl::NotifyOfGoodbye(int32_t id, const std::string& reason) {
  const bool waits = reason.empty() && !IsAttachedId(id);  // an attached worker may come again
  const bs::Duration patience = waits ? options_.reason_patience : bs::Duration(0);
  scope_.After(patience, [this, id, why = LeftStatus(id, reason)] {
    if (handler_.on_worker_left) handler_.on_worker_left(RankOf(id), why);
  });
}

void Member::Impl::OnWorkerVacant(const Node& node, const SchedulerBody& said) {
  const bool sane = node.role == Role::kWorker && IdFitsRole(node.id, node.role) &&
                    RankOf(node.id) < options_.num_workers && said.next_incarnation > 0;
  if (!sane || own_.role != Role::kServer) {
    DropViolation(kSchedulerId, "news of an impossible loss");
    return;
  }
  neighbours_.At(node.id)->incarnation = said.next_incarnation;
  reconnect_timer_.Forget(node.id);
  inbound_.Forget(node.id);
  suspicion_timer_.Forget(node.id);
  resends_.Forget(node.id);
  neighbours_.Apply(node, NeighbourEvent::kVacated, {.native = said.native});
}

void Member::Impl::OnWorkerLeft(const Node& node, const std::string& reason) {
  // A server may have reported the worker as lost: its connection ended before this notice came.
  if (!neighbours_.Apply(node, NeighbourEvent::kLeaves, {.why = reason})) return;
  reconnect_timer_.Forget(node.id);
  suspicion_timer_.Forget(node.id);
}

void Member::Impl::OnShutdown(const Extension& extension) {
  const bs::Status verdict = StatusOf(extension);
  report_ = bs::Status::Ok();
  if (ended_) return;
  ended_ = true;
  if (!verdict.ok()) {
    Fail(verdict);
    return;
  }
  Apply(MemberEvent::kJobEnds);
}

bool Member::Impl::Apply(MemberEvent event, const bs::Status& why) {
  const MemberTable::Row* const row =
      table_.Find(state_, event, [this](MemberCondition condition) { return Holds(condition); });
  if (row == nullptr) return false;
  state_ = row->next.value_or(state_);
  Act(row->action, why);
  return true;
}

bool Member::Impl::Holds(MemberCondition condition) const {
  switch (condition) {
    case MemberCondition::kAlways:
      return true;
    case MemberCondition::kInList:
      return view_.own_id != kEmpty;
    case MemberCondition::kNoOneListens:
      return view_.own_id != kEmpty && (scheduler_lost_ || stock_scheduler_);
  }
  return false;
}

void Member::Impl::Act(MemberAction action, const bs::Status& why) {
  switch (action) {
    case MemberAction::kNone:
      return;
    case MemberAction::kEnter:
      return Connect();
    case MemberAction::kTellReady:
      log_.Debug([this] { return Describe(own_) + " is ready"; });
      return TellReady(view_);
    case MemberAction::kFail:
      NotifyOfFailure(why);
      return GoOver(why);
    case MemberAction::kFailQuietly:
      TellReady(why);
      return GoOver(why);
    case MemberAction::kRefuse:
      TellReady(bs::Status::Unavailable("the job is over"));
      return barriers_.EndAll(bs::Status::Unavailable("the job is over"));
    case MemberAction::kEndWell:
      NotifyOfEnd();
      return barriers_.EndAll(bs::Status::Unavailable("the job is over"));
    case MemberAction::kSendGoodbye:
      return SayGoodbye();
    case MemberAction::kSkipGoodbye:
      return Complete(std::move(leave_done_), failure_);
    case MemberAction::kCompleteGoodbye:
      leave_retry_.Stop();
      heartbeat_.Stop();
      return Complete(std::move(leave_done_), why);
  }
}

void Member::Impl::NotifyOfFailure(const bs::Status& why) {
  if (ready_call_ == ReadyCall::kOwed) return TellReady(why);
  scope_.Post([this, why] {
    if (handler_.on_failure) handler_.on_failure(why);
  });
}

void Member::Impl::NotifyOfEnd() {
  scope_.Post([this] {
    if (handler_.on_shutdown) handler_.on_shutdown();
  });
}

void Member::Impl::GoOver(const bs::Status& why) {
  failure_ = why;
  retry_.Stop();
  barriers_.EndAll(why);
  if (options_.role != Role::kWorker) return;  // servers still refuse pending pulls
  // No caller waits for responses any more; a server that does not read must not keep our memory.
  for (const auto& [id, neighbour] : neighbours_.all()) {
    if (neighbour.state == NeighbourState::kKnown) transport_->Disconnect(id, bs::Duration(0));
  }
  for (const auto& [id, node] : beside_) transport_->Disconnect(id, bs::Duration(0));
}

void Member::Impl::TellReady(bs::Result<View> view) {
  if (ready_call_ != ReadyCall::kOwed) return;
  ready_call_ = ReadyCall::kPosted;
  scope_.Post([this, view = std::move(view)] {
    ready_call_ = ReadyCall::kMade;
    handler_.on_ready(view);
    for (Message& message : std::exchange(early_, {})) handler_.on_message(std::move(message));
  });
}

void Member::Impl::Complete(StatusCallback done, const bs::Status& status) {
  if (state_ == MemberState::kClosed) {
    executor_->Post([done = std::move(done), status] { done(status); });
    return;
  }
  due_.push_back({std::move(done), status});
  scope_.Post([this] { RunNextDue(); });
}

void Member::Impl::RunNextDue() {
  const Due due = std::move(due_.front());
  due_.pop_front();
  due.done(due.status);
}

}  // namespace ps
