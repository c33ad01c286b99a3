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
  for (const auto& [id, lost] : unreachable_) {
    Meta meta = NativeControl(Command::kHeartbeat, Op::kVacate, NextSequence());
    meta.control.nodes = {own_, lost.first};
    meta.extension.text = lost.second;
    MemberBody body;
    if (incarnations_.contains(id)) {
      body.lost_incarnation = static_cast<uint32_t>(incarnations_[id]);
    }
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
  if (phase_ != Phase::kReady) {
    const auto early = bs::Status::FailedPrecondition("not in the job yet");
    const auto closed = bs::Status::Cancelled("the membership was closed");
    const auto over = failure_.ok() ? bs::Status::Unavailable("the job is over") : failure_;
    const bool was_in = phase_ == Phase::kOver;
    Complete(std::move(done), phase_ == Phase::kClosed ? closed : was_in ? over : early);
    return;
  }
  BarrierCall call;
  call.group = group;
  call.done = std::move(done);
  QueueBarrier(std::move(call));
}

void Member::Impl::JoinFinalBarrier() {
  if (joined_final_ || (phase_ != Phase::kReady && phase_ != Phase::kStarting)) return;
  joined_final_ = true;
  BarrierCall call;
  call.group = kEveryone;
  call.last = true;
  QueueBarrier(std::move(call));
}

void Member::Impl::QueueBarrier(BarrierCall call) {
  barriers_.push_back(std::move(call));
  if (barriers_.size() == 1) BeginBarrier();
}

void Member::Impl::BeginBarrier() {
  BarrierCall& call = barriers_.front();
  call.sequence = NextSequence();
  SendBarrier();
  if (!stock_scheduler_) barrier_retry_.Start(options_.retry_interval, [this] { SendBarrier(); });
  if (call.last) return;
  const bs::Duration limit = call.start ? options_.timeout : options_.straggler_timeout;
  const char* const setting =
      call.start ? "BYTESCHEDULER_TIMEOUT" : "BYTESCHEDULER_STRAGGLER_TIMEOUT";
  barrier_timer_ = scope_.After(limit, [this, limit, setting] {
    barrier_timer_ = 0;
    const BarrierCall& late = barriers_.front();
    EndBarrier(bs::Status::DeadlineExceeded(
        "barrier of " + DescribeGroup(late.group) + ": not complete in " + TextOf(limit) +
        (late.waits_for.empty() ? "" : ", waiting for " + late.waits_for) + " (" + setting + ")"));
  });
}

void Member::Impl::SendBarrier() {
  const BarrierCall& call = barriers_.front();
  if (stock_scheduler_) {
    SendStockBarrier(call.group);
    return;
  }
  Meta meta = NativeControl(Command::kBarrier, call.last ? Op::kLeave : Op::kNone, call.sequence);
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.control.barrier_group = call.group;
  SendControl(std::move(meta));
}

void Member::Impl::EndBarrier(const bs::Status& status) {
  barrier_retry_.Stop();
  if (barrier_timer_ != 0) scope_.Cancel(std::exchange(barrier_timer_, 0));
  BarrierCall call = std::move(barriers_.front());
  barriers_.pop_front();
  if (call.done) Complete(std::move(call.done), status);
  if (!barriers_.empty()) BeginBarrier();
}

void Member::Impl::EndAllBarriers(const bs::Status& status) {
  barrier_retry_.Stop();
  if (barrier_timer_ != 0) scope_.Cancel(std::exchange(barrier_timer_, 0));
  for (BarrierCall& call : std::exchange(barriers_, {})) {
    if (call.done) Complete(std::move(call.done), status);
  }
}

void Member::Impl::Leave(StatusCallback done) {
  if (phase_ == Phase::kClosed) {
    Complete(std::move(done), bs::Status::Cancelled("the membership was closed"));
    return;
  }
  if (left_ || view_.own_id == kEmpty) {
    Complete(std::move(done), left_ ? bs::Status::FailedPrecondition("said goodbye already")
                                    : bs::Status::FailedPrecondition("not in the job yet"));
    return;
  }
  left_ = true;
  if (scheduler_lost_ || stock_scheduler_) {
    Complete(std::move(done), failure_);
    return;
  }
  leaving_ = true;
  leave_done_ = std::move(done);
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
  SetStatus(report_, &meta.extension);
  SendControl(std::move(meta));
}

void Member::Impl::EndLeave(const bs::Status& status) {
  if (!leaving_) return;
  leaving_ = false;
  leave_retry_.Stop();
  heartbeat_.Stop();
  Complete(std::move(leave_done_), status);
}

void Member::Impl::ReportFailure(const bs::Status& why) {
  if (phase_ == Phase::kOver || phase_ == Phase::kClosed || left_) return;
  report_ = why;
  if (view_.own_id != kEmpty) SendHeartbeat();
  if (ready_told_ || ready_due_) {
    GoOver(why);
  } else {
    Fail(why);
  }
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
    OnLost(peer, why);
  };
}

// A lost stock worker that is alive would wait for responses for ever, or go on alone.
void Member::Impl::TurnAway(const Message& message) {
  const int32_t id = message.peer;
  const bool stock_worker =
      own_.role == Role::kServer && !message.meta.native() && IdFitsRole(id, Role::kWorker);
  const auto lost = stock_worker ? lost_.find(id) : lost_.end();
  if (lost == lost_.end()) {
    Drop(id, "data of a node that is not in the job");
    return;
  }
  if (lost->second.told > 0) return;
  log_.Warning(Describe(lost->second.node) + " was lost (" + lost->second.why +
               ") and asks for more: its process is told to end");
  TellTheEnd(id);
}

// Repeated, because the worker does not read a new connection while it has our old one.
void Member::Impl::TellTheEnd(int32_t id) {
  constexpr bs::Duration kPause = std::chrono::seconds(2);
  constexpr int kMostTold = 30;
  const auto lost = lost_.find(id);
  if (lost == lost_.end() || lost->second.told == kMostTold) return;
  if (phase_ != Phase::kReady || left_) return;
  ++lost->second.told;
  transport_->Connect(id, AddressOf(lost->second.node), own_.id);
  SendEnd(lost->second.node, lost->second.why);
  scope_.After(kPause, [this, id] { TellTheEnd(id); });
}

void Member::Impl::SendEnd(const Node& node, const std::string& why) {
  constexpr bs::Duration kLinger = std::chrono::seconds(1);
  transport_->Send(MakeStockWord(node.id, "lost " + Describe(node) + ": " + why));
  transport_->Send(MakeStockEnd(node.id));
  transport_->Disconnect(node.id, kLinger);
}

void Member::Impl::OnInboundEnded(int32_t id, bool torn) {
  const bool known = known_.contains(id) || (id == kSchedulerId && stock_scheduler_);
  const bool running = (phase_ == Phase::kStarting || phase_ == Phase::kReady) && !left_;
  inbound_.OnEnded(id, known && resends_.Heard(id) && running, torn && !resends_.SendsAgain(id));
  Suspect(id);
}

void Member::Impl::Suspect(int32_t id) {
  const bool stock_worker =
      known_.contains(id) && IdFitsRole(id, Role::kWorker) && resends_.Heard(id);
  const bool trains = phase_ == Phase::kReady && !left_ && !joined_final_;
  if (own_.role == Role::kServer && stock_worker && trains) suspicion_timer_.Begin(id);
}

void Member::Impl::OnUnheard(int32_t id, const std::string& why) {
  if (joined_final_) return;  // stock nodes close after the final barrier
  reconnect_timer_.Forget(id);
  const auto it = known_.find(id);
  const bool alone =
      !known_.contains(AttachedId(RankOf(id)));  // else the attached worker notifies it
  if (it != known_.end() && alone) SendEnd(it->second, why);
  OnLost(id, why);
}

void Member::Impl::OnLost(int32_t id, const std::string& why) {
  inbound_.Forget(id);
  suspicion_timer_.Forget(id);
  if (id == kSchedulerId) {
    const bs::Status lost = LostStatus(scheduler_, why);
    scheduler_lost_ = true;
    heartbeat_.Stop();
    EndLeave(ended_ ? bs::Status::Ok() : lost);
    Fail(lost);
    return;
  }
  const auto it = known_.find(id);
  if (it == known_.end()) return;
  const bs::Status lost = LostStatus(it->second, why);
  const Node node = it->second;
  known_.erase(it);
  lost_[id] = {.node = node, .why = why};
  // Messages that wait for it would never leave, and their owners would never get the memory back.
  transport_->Disconnect(id, bs::Duration(0));
  // Stock workers leave without a message; the scheduler node judges if they had finished.
  if (joined_final_ && !IsAttachedId(id)) return;
  // Its process has left, and ended without the destructor of MXNet's own store.
  if (node.role == Role::kWorker && !IsAttachedId(id) &&
      departed_.contains(AttachedId(RankOf(id)))) {
    return;
  }
  if (phase_ == Phase::kOver || left_) return;
  // The scheduler node judges which is lost: the worker, which may be this node, or the server.
  const bool replaceable = options_.rejoin_timeout > bs::Duration(0) && !stock_scheduler_;
  if (replaceable && (node.role == Role::kWorker || phase_ == Phase::kReady)) {
    unreachable_[id] = {node, why};
    SendUnreachable();
    return;
  }
  report_ = lost;
  SendHeartbeat();
  Fail(lost);
}

void Member::Impl::OnUnconnected(int32_t id, const std::string& why) {
  const auto it = known_.find(id);
  OnLost(id, it == known_.end() ? why : attempts_.WhyLost(id, AddressOf(it->second), why));
}

void Member::Impl::OnWorkerVacant(const Node& node, const SchedulerBody& said) {
  const bool sane = node.role == Role::kWorker && IdFitsRole(node.id, node.role) &&
                    RankOf(node.id) < options_.num_workers && said.next_incarnation > 0;
  if (!sane || own_.role != Role::kServer) {
    DropViolation(kSchedulerId, "news of an impossible loss");
    return;
  }
  incarnations_[node.id] = said.next_incarnation;
  unreachable_.erase(node.id);
  reconnect_timer_.Forget(node.id);
  inbound_.Forget(node.id);
  suspicion_timer_.Forget(node.id);
  resends_.Forget(node.id);
  if (known_.erase(node.id) > 0) {
    lost_[node.id] = {.node = node, .why = "its place is free for another"};
    transport_->Disconnect(node.id, bs::Duration(0));
  }
  scope_.Post([this, id = node.id, native = said.native] {
    if (handler_.on_worker_vacant) handler_.on_worker_vacant(id, native);
  });
}

void Member::Impl::OnWorkerLeft(const Node& node) {
  // A server may have reported the worker as lost: its connection ended before this notice came.
  const bool unreachable = unreachable_.erase(node.id) > 0;
  const bool known = known_.erase(node.id) > 0;
  if (!known && !unreachable) return;
  if (IsAttachedId(node.id)) departed_.insert(node.id);
  reconnect_timer_.Forget(node.id);
  suspicion_timer_.Forget(node.id);
  if (known) transport_->Disconnect(node.id, bs::Duration(0));
  scope_.Post([this, rank = RankOf(node.id)] {
    if (handler_.on_worker_left) handler_.on_worker_left(rank);
  });
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
  const bool tell = phase_ == Phase::kReady && !left_;
  const bool early = phase_ == Phase::kRegistering || phase_ == Phase::kStarting;
  if (early) TellReady(bs::Status::Unavailable("the job is over"));
  if (phase_ == Phase::kOver) return;
  phase_ = Phase::kOver;
  if (tell) {
    scope_.Post([this] {
      if (handler_.on_shutdown) handler_.on_shutdown();
    });
  }
  EndAllBarriers(bs::Status::Unavailable("the job is over"));
}

void Member::Impl::Fail(const bs::Status& why) {
  if (phase_ == Phase::kOver || phase_ == Phase::kClosed || left_) return;
  if (!ready_told_ && !ready_due_) {
    TellReady(why);
  } else {
    scope_.Post([this, why] {
      if (handler_.on_failure) handler_.on_failure(why);
    });
  }
  GoOver(why);
}

void Member::Impl::GoOver(const bs::Status& why) {
  phase_ = Phase::kOver;
  failure_ = why;
  retry_.Stop();
  EndAllBarriers(why);
  if (options_.role != Role::kWorker) return;  // servers still refuse pending pulls
  // No caller waits for responses any more; a server that does not read must not keep our memory.
  for (const auto& [id, node] : known_) {
    if (id != kSchedulerId) transport_->Disconnect(id, bs::Duration(0));
  }
}

void Member::Impl::TellReady(bs::Result<View> view) {
  if (ready_told_ || ready_due_) return;
  ready_due_ = true;
  scope_.Post([this, view = std::move(view)] {
    ready_told_ = true;
    handler_.on_ready(view);
  });
}

void Member::Impl::Complete(StatusCallback done, const bs::Status& status) {
  if (phase_ == Phase::kClosed) {
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
