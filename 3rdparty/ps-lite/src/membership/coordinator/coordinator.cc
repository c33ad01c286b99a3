// Coordinator: the scheduler node while the job runs - barriers, heartbeats, goodbyes.
#include <algorithm>
#include <utility>

#include "membership/coordinator/coordinator_impl.h"
#include "membership/role_limits.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {

Coordinator::Coordinator(const MembershipOptions& options, Transport* transport,
                         bs::Executor* executor, const bs::Logger& log)
    : Coordinator(options, transport, executor, log, PeerTable()) {}
Coordinator::Coordinator(const MembershipOptions& options, Transport* transport,
                         bs::Executor* executor, const bs::Logger& log, PeerTable table)
    : impl_(std::make_unique<Impl>(options, transport, executor, log, std::move(table))) {}
Coordinator::~Coordinator() = default;
void Coordinator::Start(Handler handler) { impl_->Start(std::move(handler)); }
void Coordinator::Abort(const bs::Status& why) { impl_->Abort(why); }
void Coordinator::Measure(bs::Metrics* metrics) const { impl_->Measure(metrics); }
void Coordinator::Close(bs::Duration linger) { impl_->Close(linger); }

Coordinator::Impl::Impl(const MembershipOptions& options, Transport* transport,
                        bs::Executor* executor, const bs::Logger& log, PeerTable table)
    : options_(options),
      transport_(transport),
      executor_(executor),
      log_(log),
      scope_(executor),
      detector_(
          options, &scope_, [this](int32_t id, const std::string& why) { OnLost(id, why); },
          [this](int32_t id, const std::string& why) { OnUnheard(id, why); }),
      // A live node that was given up registers again.
      temporary_reconnect_timer_(
          &scope_, std::max(options.report_interval, options.reconnect_grace),
          options.reconnect_grace,
          [this](int32_t peer, const std::string& why) { OnTemporaryLost(peer, why); }),
      broadcast_(&scope_, options.retry_interval,
                 [this](int32_t peer, const Meta& meta) { Send(peer, meta); }),
      report_(&scope_),
      heartbeat_(&scope_),
      limited_log_(executor, log),
      root_(options.root),
      roster_(options.num_workers, options.num_servers),
      next_temporary_(kFirstTemporaryId),
      next_refused_(kFirstRefusedId),
      peers_(
          std::move(table),
          [this](PeerCondition condition, const Peer& peer, const PeerDetails& details) {
            return Holds(condition, peer, details);
          },
          [this](PeerAction action, Peer* peer, const PeerDetails& details) {
            Act(action, peer, details);
          }),
      barriers_(options.num_workers) {}

Coordinator::Impl::~Impl() { Close(bs::Duration(0)); }

void Coordinator::Impl::Close(bs::Duration linger) {
  if (closed_) return;
  closed_ = true;
  scope_.Close();
  transport_->Close(linger);
}

Transport::Handler Coordinator::Impl::TransportHandler() {
  Transport::Handler handler;
  handler.on_message = [this](const Message& message) { OnMessage(message); };
  handler.knows = [this](int32_t peer) {
    return FindPeer(peer) != nullptr && !detector_.IsDismissed(peer);
  };
  handler.most_bytes = [](int32_t, const Meta& meta) {
    return MostDataBytes(Role::kScheduler, meta, 0);
  };
  handler.on_garbage = [this](int32_t peer, const bs::Status& what) {
    if (FindPeer(peer) == nullptr) return;  // the transport has named it
    limited_log_.Warning("dropped bytes from " + DescribeSender(peer) + ": " + what.message());
    OnViolation(peer, what.message());
  };
  handler.on_overflow = [this](int32_t peer, const std::string& why) {
    temporary_reconnect_timer_.Forget(peer);
    OnTemporaryLost(peer, why);
    OnLost(peer, why);
  };
  handler.on_attempt = [this](int32_t peer, const std::string& what) {
    if (peer < kFirstTemporaryId) return detector_.OnAttempt(peer, what);
    if (peer < kFirstRefusedId) attempts_.OnAttempt(peer, what);
  };
  handler.on_connected = [this](int32_t peer) {
    if (peer < kFirstTemporaryId) return detector_.OnConnected(peer);
    if (peer < kFirstRefusedId) attempts_.OnConnected(peer);
    OnTemporaryConnected(peer);
    temporary_reconnect_timer_.OnConnected(peer);
  };
  handler.on_disconnected = [this](int32_t peer) {
    detector_.OnDisconnected(peer);
    temporary_reconnect_timer_.OnDisconnected(peer);
    peers_.Apply(peer, PeerEvent::kDisconnected);
  };
  handler.on_inbound = [this](int32_t peer) { detector_.OnInbound(peer); };
  handler.on_inbound_ended = [this](int32_t peer, bool torn) { OnInboundEnded(peer, torn); };
  return handler;
}

void Coordinator::Impl::OnMessage(const Message& message) {
  if (!message.meta.is_control) {
    // The node that has the id now did not send it.
    const bool other = message.meta.native() && message.meta.extension.job != JobMark(options_.job);
    if (other) return Drop(message, kFromAnotherJob);
    DropViolation(message, "data for the scheduler node");
    return;
  }
  if (message.peer == kEmpty) {
    OnRegister(message);
    return;
  }
  Peer* const peer = FindPeer(message.peer);
  const bs::Result<MemberBody> body = DecodeMemberBody(message.meta.extension.body);
  if (!body.ok()) {
    DropViolation(message, body.status().message());
    return;
  }
  const MemberBody& said = body.value();
  if (message.meta.native() && said.job != options_.job) {
    Drop(message, kFromAnotherJob);
    DismissOfAnotherJob(message.meta, said.job);
    return;
  }
  if (peer == nullptr) {
    Drop(message, "it is not in this job");
    return;
  }
  if (peer->native != message.meta.native()) {
    Drop(message, "it registered otherwise");
    return;
  }
  const bool former = peer->native && said.incarnation != peer->incarnation;
  peers_.Apply(message.peer, former ? PeerEvent::kFormerHeard : PeerEvent::kHeard,
               {.message = &message});
  if (former || IsVacant(peer->state)) return;
  detector_.OnHeard(message.peer);
  if (!peer->native && !TakeStock(message)) return;
  switch (message.meta.control.command) {
    case Command::kBarrier:
      OnBarrier(message.peer, message);
      return;
    case Command::kHeartbeat:
      OnHeartbeat(message.peer, message, said);
      return;
    case Command::kAddNode:
      if (peer->native) return DropViolation(message, "a registration under an id");
      return OnSecondStore(*peer);
    case Command::kAck:
      broadcast_.Confirm(message.peer, message.meta.extension.sequence);
      return;
    case Command::kNone:
      OnPeerOp(message.peer, message);
      return;
    default:
      DropViolation(message, "unexpected control command");
  }
}

bool Coordinator::Impl::TakeStock(const Message& message) {
  Resends::Verdict verdict = resends_.Take(message, kSchedulerId);
  if (verdict.ack) SendUnnumbered(message.peer, std::move(*verdict.ack));
  return verdict.fresh;
}

void Coordinator::Impl::OnSecondStore(const Peer& peer) {
  if (phase_ != Phase::kRunning) return;
  // Its start barrier is one of all nodes, and no other node joins it again.
  const auto why = bs::Status::FailedPrecondition(
      Describe(peer.node) +
      " makes a second dist store of MXNet's, which waits for ever: import bytescheduler.mxnet "
      "before the stores are created, and wrap each (kvs = ScheduledKVS(kvs))");
  // Also beside an attached worker, which cannot end a wait of MXNet's.
  EndStockNode(peer.node, peer.node.id, why.message());
  EndJob(why);
}

void Coordinator::Impl::OnBarrier(int32_t id, const Message& message) {
  BarrierRequest request;
  request.id = id;
  request.since = scope_.Now();
  request.group = message.meta.control.barrier_group;
  request.native = message.meta.native();
  request.last = message.meta.extension.op == Op::kLeave;
  request.sequence = message.meta.extension.sequence;
  request.app_id = message.meta.app_id;
  request.customer_id = message.meta.customer_id;
  if (!message.meta.request) {
    DropViolation(message, "a barrier's answer");
    return;
  }
  if (const bs::Status check = barriers_.Check(request); !check.ok()) {
    if (request.native) SendAnswers({{request, id, check}});
    DropViolation(message, check.message());
    return;
  }
  SendAnswers(barriers_.Arrive(request));
  if (barriers_.final_done()) WarnOfUnwrapped();
  if (phase_ != Phase::kRunning) {
    SendAnswers(barriers_.ReleaseStock());
    return;
  }
  const std::string whom = barriers_.WaitsFor(request);
  if (request.native && !whom.empty()) SendStatus(id, request.sequence, bs::Status::Ok(), whom);
  CheckEnd();
}

void Coordinator::Impl::OnHeartbeat(int32_t id, const Message& message, const MemberBody& said) {
  const Extension& extension = message.meta.extension;
  Meta answer;
  answer.is_control = true;
  if (extension.op == Op::kVacate) OnUnreachable(id, message.meta, said.lost_incarnation);
  if (extension.op == Op::kState) detector_.ForgetOldReport(id);
  if (message.meta.native()) {
    if (extension.op == Op::kState && extension.status != 0 && phase_ == Phase::kRunning) {
      EndJob(
          {StatusOf(extension).code(), extension.text + " (reported by " + DescribeId(id) + ")"});
    }
    const bool over = phase_ != Phase::kRunning;
    answer =
        NativeControl(Command::kHeartbeat, over ? Op::kShutdown : Op::kState, extension.sequence);
    if (over) SetStatus(verdict_, &answer.extension);
  }
  answer.control.command = Command::kHeartbeat;
  answer.control.nodes = {OwnEntry()};
  Send(id, std::move(answer));
}

void Coordinator::Impl::OnPeerOp(int32_t id, const Message& message) {
  if (message.meta.extension.op == Op::kLeave) {
    OnLeave(id, message);
  } else {
    DropViolation(message, "unexpected operation");
  }
}

void Coordinator::Impl::OnLeave(int32_t id, const Message& message) {
  const Extension& extension = message.meta.extension;
  if (extension.status != 0 && phase_ == Phase::kRunning) {
    EndJob({StatusOf(extension).code(), extension.text + " (reported by " + DescribeId(id) + ")"});
  }
  const Peers::Outcome outcome =
      peers_.Apply(id, PeerEvent::kGoodbye, {.sequence = extension.sequence});
  if (outcome == Peers::Outcome::kViolation) DropViolation(message, "a goodbye before the list");
}

void Coordinator::Impl::AnnounceGoodbye(const Peer& peer, uint64_t sequence) {
  EndBarriers(peer);
  log_.Info(Describe(peer.node) + " left");
  // The servers must know before the worker closes, or they would report it as lost.
  const int32_t id = peer.node.id;
  Meta news = NativeControl(Command::kNone, Op::kLeave, 0);
  news.extension.body = BodyAbout(Op::kLeave, RankOf(id), 0);
  news.control.nodes = {peer.node};
  broadcast_.Send(peers_.NativeServers(), news, [this, id, sequence] {
    peers_.Apply(id, PeerEvent::kGoodbyeKnown, {.sequence = sequence});
  });
}

void Coordinator::Impl::Respond(int32_t id, uint64_t sequence) {
  Send(id, NativeControl(Command::kNone, Op::kLeave, sequence));
}

void Coordinator::Impl::CheckSilence() {
  std::vector<int32_t> ids;
  for (const auto& [id, peer] : peers_.all()) {
    const bool listed = peer.state == PeerState::kListed || peer.state == PeerState::kLive;
    if (peer.native && listed) ids.push_back(id);
  }
  detector_.CheckSilence(ids);
}

void Coordinator::Impl::EndForStragglers() {
  const bs::TimePoint now = scope_.Now();
  if (const std::string both = barriers_.DescribeDeadlock(now - options_.report_interval);
      phase_ == Phase::kRunning && !both.empty()) {
    EndJob(bs::Status::FailedPrecondition(
        both +
        ": every worker must make the same calls in the same order (init, broadcast, "
        "barrier, and the end of the store)"));
    return;
  }
  const bs::TimePoint limit = now - options_.straggler_timeout;
  const BarrierRequest* const late = barriers_.FindStockBefore(limit);
  if (phase_ != Phase::kRunning || late == nullptr) return;
  const std::string what = DescribeId(late->id) + " has waited " + TextOf(now - late->since) +
                           " at a barrier for " + barriers_.WaitsFor(*late);
  // MXNet's own stores wait there for ever, also at their end.
  const bool replaced = stock_replaced_ && *stock_replaced_ < limit;
  EndJob(bs::Status::DeadlineExceeded(
      what +
      (replaced ? ", in a job in which one of MXNet's own workers was replaced, so they may be at "
                  "different barriers (BYTESCHEDULER_STRAGGLER_TIMEOUT): start the job again from "
                  "your last checkpoint"
                : " (BYTESCHEDULER_STRAGGLER_TIMEOUT): if that one is only slow, make the setting "
                  "longer")));
}

void Coordinator::Impl::Send(int32_t peer, Meta meta) {
  meta.timestamp = timestamp_++;
  // The count restarts before it reaches the protocol's "not set".
  if (timestamp_ == kEmpty) timestamp_ = 0;
  SendUnnumbered(peer, std::move(meta));
}

void Coordinator::Impl::SendUnnumbered(int32_t peer, Meta meta) {
  Message message;
  message.peer = peer;
  message.meta = std::move(meta);
  Extension& extension = message.meta.extension;
  if (message.meta.native() && extension.body.empty()) {
    extension.body = Encode(extension.op, SchedulerBody{.job = options_.job});
  }
  transport_->Send(std::move(message));
}

void Coordinator::Impl::SendAnswers(const Barriers::Answers& answers) {
  for (const BarrierAnswer& answer : answers) {
    const Peer* const peer = FindPeer(answer.id);
    if (peer == nullptr) continue;
    Meta meta;
    if (peer->native) {
      meta = NativeControl(Command::kBarrier, Op::kNone, answer.request.sequence);
      SetStatus(answer.status, &meta.extension);
    } else {
      meta.is_control = true;
      meta.control.command = Command::kBarrier;
      meta.app_id = answer.request.app_id;
      meta.customer_id = answer.request.customer_id;
    }
    meta.control.barrier_group = answer.request.group;
    Send(answer.id, std::move(meta));
  }
}

void Coordinator::Impl::Drop(const Message& message, const std::string& why) {
  limited_log_.Warning("dropped a message from " + DescribeSender(message.peer) + ": " + why);
}

void Coordinator::Impl::DropViolation(const Message& message, const std::string& why) {
  Drop(message, why);
  OnViolation(message.peer, why);
}

void Coordinator::Impl::OnViolation(int32_t id, const std::string& what) {
  Peer* const peer = FindPeer(id);
  const bool counts = peer != nullptr && IsPresent(peer->state) && phase_ == Phase::kRunning;
  if (counts && detector_.CountViolation(id)) OnLost(id, ViolationLimiter::Why(what));
}

void Coordinator::Impl::Measure(bs::Metrics* metrics) const {
  metrics->Add("workers", 0);
  metrics->Add("servers", 0);
  for (const auto& [id, peer] : peers_.all()) {
    if (!IsPresent(peer.state)) continue;
    const std::string role = peer.node.role == Role::kServer ? "server" : "worker";
    if (!IsAttachedId(id)) metrics->Add(role + "s", 1);
    // Stock nodes need not send heartbeats.
    if (!peer.native) continue;
    const std::chrono::duration<double> silent = detector_.SilenceOf(id);
    metrics->Add(role + "_silent_seconds", RankOf(id), silent.count());
  }
}

bool Coordinator::Impl::Holds(PeerCondition condition, const Peer& peer,
                              const PeerDetails& details) const {
  switch (condition) {
    case PeerCondition::kAlways:
      return true;
    case PeerCondition::kServersNeedNotKnow:
      return phase_ != Phase::kRunning || peer.node.role == Role::kServer;
    case PeerCondition::kAttachedLeft:
      return HasLeftBeside(peer);
    case PeerCondition::kReplaceable:
      return MayReplace(peer);
    case PeerCondition::kJobRuns:
      return phase_ == Phase::kRunning;
    case PeerCondition::kNeeded:
      return phase_ == Phase::kRunning && !barriers_.final_done();
    case PeerCondition::kSuccessorRepeats:
      return AddressOf(peer.successor.node) == AddressOf(details.newcomer.node);
    case PeerCondition::kNeverBroken:
      return detector_.NeverBroke(peer.node.id);
  }
  return false;
}

void Coordinator::Impl::Act(PeerAction action, Peer* peer, const PeerDetails& details) {
  switch (action) {
    case PeerAction::kNone:
      return;
    case PeerAction::kConnect:
    case PeerAction::kIntroduce:
    case PeerAction::kAdmit:
    case PeerAction::kSendList:
    case PeerAction::kTakeSequence:
    case PeerAction::kClaim:
    case PeerAction::kAccept:
    case PeerAction::kFill:
    case PeerAction::kHold:
    case PeerAction::kDismiss:
    case PeerAction::kRefuseSuccessor:
      ActOnJoining(action, peer, details);
      return;
    default:
      ActOnEnd(action, peer, details);
  }
}

void Coordinator::Impl::ActOnJoining(PeerAction action, Peer* peer, const PeerDetails& details) {
  switch (action) {
    case PeerAction::kConnect:
      return Connect(peer, details.newcomer.node, details.native, details.newcomer.sequence,
                     options_.timeout);
    case PeerAction::kIntroduce:
      return Introduce(peer, details.newcomer);
    case PeerAction::kAdmit:
      detector_.OnHeard(peer->node.id);
      return SendList(peer->node.id);
    case PeerAction::kSendList:
      return SendList(peer->node.id);
    case PeerAction::kTakeSequence:
      peer->sequence = details.sequence;
      return;
    case PeerAction::kClaim:
      peer->successor = details.newcomer;
      return;
    case PeerAction::kAccept:
      return Fill(peer, details.newcomer);
    case PeerAction::kFill:
      return Fill(peer, Registrant(peer->successor));
    case PeerAction::kHold:
      return HoldAttached(details.newcomer, RankOf(peer->node.id),
                          peer->state == PeerState::kClaimed ? peer->successor.node : peer->node);
    case PeerAction::kDismiss:
      return Dismiss(*peer, *details.message);
    case PeerAction::kRefuseSuccessor:
      return Refuse(peer->successor.node, peer->native, peer->successor.sequence, Over());
    default:
      return;
  }
}

}  // namespace ps
