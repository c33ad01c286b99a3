// Member: a node in the job - barriers, heartbeats, failures, goodbye.
#include <algorithm>
#include <utility>

#include "membership/member/member_impl.h"
#include "membership/role_limits.h"
#include "wire/control.h"

namespace ps {

void Member::Impl::SendHeartbeat() {
  if (context_.stock_scheduler) {
    SendStockHeartbeat();
    return;
  }
  Meta meta = NativeControl(Command::kHeartbeat, Op::kState, context_.NextSequence());
  meta.control.nodes = {context_.own};
  SetStatus(report_, &meta.extension);
  context_.SendControl(std::move(meta));
  contacts_.SendUnreachable();
}

void Member::Impl::CheckScheduler() {
  if (context_.scheduler_lost || !pause_detector_) return;
  const bs::TimePoint now = context_.scope.Now();
  const bs::TimePoint since = std::max(last_word_, pause_detector_->LastPauseEnd(now));
  if (now < since + context_.options.heartbeat_timeout) return;
  contacts_.Lose(kSchedulerId, SilentFor(context_.options.heartbeat_timeout));
}

void Member::Impl::Barrier(int32_t group, StatusCallback done) {
  const bool was_in = context_.over();
  const bool closed = context_.closed();
  if (was_in || closed ||
      EnumSet<MemberState>{MemberState::kRegistering, MemberState::kStarting}.contains(
          context_.state)) {
    const auto over = failure_.ok() ? bs::Status::Unavailable("the job is over") : failure_;
    Complete(std::move(done), closed   ? bs::Status::Cancelled("the membership was closed")
                              : was_in ? over
                                       : bs::Status::FailedPrecondition("not in the job yet"));
    return;
  }
  BarrierQueue::Call call;
  call.group = group;
  call.repeats = !context_.stock_scheduler;
  call.limit =
      BarrierQueue::Limit{context_.options.straggler_timeout, "BYTESCHEDULER_STRAGGLER_TIMEOUT"};
  call.done = std::move(done);
  barriers_.Add(std::move(call));
}

void Member::Impl::JoinFinalBarrier() {
  const bool over = context_.over() || context_.closed();
  if (context_.joined_final || over || context_.state == MemberState::kRegistering) return;
  context_.joined_final = true;
  BarrierQueue::Call call;
  call.group = kEveryone;
  call.last = true;
  call.repeats = !context_.stock_scheduler;
  barriers_.Add(std::move(call));
}

void Member::Impl::SendBarrier(const BarrierQueue::Call& call, uint64_t sequence) {
  if (context_.stock_scheduler) return SendStockBarrier(call.group);
  Meta meta = NativeControl(Command::kBarrier, call.last ? Op::kLeave : Op::kNone, sequence);
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.control.barrier_group = call.group;
  context_.SendControl(std::move(meta));
}

void Member::Impl::Leave(const std::string& reason, StatusCallback done) {
  if (context_.closed()) {
    Complete(std::move(done), bs::Status::Cancelled("the membership was closed"));
    return;
  }
  StatusCallback before = std::exchange(leave_done_, std::move(done));
  if (leave_sequence_ == 0) leave_reason_ = ShortReason(reason);
  if (Apply(MemberEvent::kGoodbye)) return;
  Complete(std::exchange(leave_done_, std::move(before)),
           bs::Status::FailedPrecondition(HasLeft(context_.state) ? "said goodbye already"
                                                                  : "not in the job yet"));
}

void Member::Impl::SayGoodbye() {
  leave_sequence_ = context_.NextSequence();
  SendLeave();
  leave_retry_.Start(std::min(context_.options.retry_interval, kFarewellRetry),
                     [this] { SendLeave(); });
  const bs::Duration patience = failure_.ok() ? context_.options.timeout : kFarewell;
  context_.scope.After(patience, [this, patience] {
    EndLeave(bs::Status::DeadlineExceeded("the scheduler node did not respond to our goodbye in " +
                                          TextOf(patience)));
  });
}

void Member::Impl::SendLeave() {
  Meta meta = NativeControl(Command::kNone, Op::kLeave, leave_sequence_);
  meta.extension.text = leave_reason_;
  SetStatus(report_, &meta.extension);
  context_.SendControl(std::move(meta));
}

void Member::Impl::EndLeave(const bs::Status& status) { Apply(MemberEvent::kGoodbyeEnds, status); }

void Member::Impl::ReportFailure(const bs::Status& why) {
  if (context_.state != MemberState::kRegistering && !context_.takes_part()) return;
  report_ = why;
  if (context_.view.own_id != kEmpty) SendHeartbeat();
  Apply(MemberEvent::kOwnFailure, why);
}

void Member::Impl::SetLimits(Transport::Handler* handler) {
  handler->knows = [this](int32_t peer) { return contacts_.Knows(peer); };
  handler->most_bytes = [this](int32_t, const Meta& meta) {
    const bool announces = context_.own.role == Role::kServer && meta.native() && !meta.is_control;
    const bool asks = announces && context_.handler.announced_bytes;
    return MostDataBytes(context_.own.role, meta,
                         asks ? context_.handler.announced_bytes(meta.extension) : 0);
  };
  handler->on_overflow = [this](int32_t peer, const std::string& why) {
    contacts_.OnOverflow(peer, why);
  };
}

void Member::Impl::OnSchedulerLost(const std::string& why) {
  const bs::Status lost = LostStatus(scheduler_, why);
  context_.scheduler_lost = true;
  heartbeat_.Stop();
  EndLeave(ended_ ? bs::Status::Ok() : lost);
  Fail(lost);
}

void Member::Impl::FailJob(const bs::Status& why) {
  if (!context_.takes_part()) return;
  report_ = why;
  SendHeartbeat();
  Fail(why);
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
  const MemberTable::Row* const row = table_.Find(
      context_.state, event, [this](MemberCondition condition) { return Holds(condition); });
  if (row == nullptr) return false;
  context_.state = row->next.value_or(context_.state);
  Act(row->action, why);
  return true;
}

bool Member::Impl::Holds(MemberCondition condition) const {
  switch (condition) {
    case MemberCondition::kAlways:
      return true;
    case MemberCondition::kInList:
      return context_.view.own_id != kEmpty;
    case MemberCondition::kNoOneListens:
      return context_.view.own_id != kEmpty &&
             (context_.scheduler_lost || context_.stock_scheduler);
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
      context_.log.Debug([this] { return Describe(context_.own) + " is ready"; });
      return TellReady(context_.view);
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
  context_.scope.Post([this, why] {
    if (context_.handler.on_failure) context_.handler.on_failure(why);
  });
}

void Member::Impl::NotifyOfEnd() {
  context_.scope.Post([this] {
    if (context_.handler.on_shutdown) context_.handler.on_shutdown();
  });
}

void Member::Impl::GoOver(const bs::Status& why) {
  failure_ = why;
  retry_.Stop();
  barriers_.EndAll(why);
  if (context_.options.role != Role::kWorker) return;  // servers still refuse pending pulls
  // No caller waits for responses any more; a server that does not read must not keep our memory.
  contacts_.DisconnectAll();
}

void Member::Impl::TellReady(bs::Result<View> view) {
  if (ready_call_ != ReadyCall::kOwed) return;
  ready_call_ = ReadyCall::kPosted;
  context_.scope.Post([this, view = std::move(view)] {
    ready_call_ = ReadyCall::kMade;
    context_.handler.on_ready(view);
    for (Message& message : std::exchange(early_, {}))
      context_.handler.on_message(std::move(message));
  });
}

void Member::Impl::Complete(StatusCallback done, const bs::Status& status) {
  if (context_.closed()) {
    executor_->Post([done = std::move(done), status] { done(status); });
    return;
  }
  due_.push_back({std::move(done), status});
  context_.scope.Post([this] { RunNextDue(); });
}

void Member::Impl::RunNextDue() {
  const Due due = std::move(due_.front());
  due_.pop_front();
  due.done(due.status);
}

}  // namespace ps
