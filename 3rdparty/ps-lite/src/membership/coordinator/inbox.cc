// Inbox: barriers, heartbeats, goodbyes and reports of nodes.
#include "membership/coordinator/inbox.h"

#include <utility>

#include "wire/control.h"
#include "wire/wire.h"

namespace ps {

void Inbox::OnMessage(const Message& message) {
  const bs::Result<MemberBody> body = DecodeMemberBody(message.meta.extension.body);
  if (!body.ok()) return DropViolation(message, body.status().message());
  const Peer* const peer = FindSender(message, body.value());
  if (peer == nullptr) return;
  detector_->OnHeard(message.peer);
  if (peer->native || TakeStock(message)) Handle(message, body.value(), *peer);
}

Peer* Inbox::FindSender(const Message& message, const MemberBody& body) {
  Peer* const peer = job_->peers.Find(message.peer);
  const bool native = message.meta.native();
  if (native && body.job != job_->options.job) {
    job_->Drop(message, kFromAnotherJob);
    places_->DismissOfAnotherJob(message.meta, body.job);
    return nullptr;
  }
  if (peer == nullptr || peer->native != native) {
    job_->Drop(message, peer == nullptr ? "it is not in this job" : "it registered otherwise");
    return nullptr;
  }
  const bool former = native && body.incarnation != peer->incarnation;
  job_->peers.Apply(message.peer, former ? PeerEvent::kFormerHeard : PeerEvent::kHeard,
                    {.message = &message});
  return former || IsVacant(peer->state) ? nullptr : peer;
}

void Inbox::Handle(const Message& message, const MemberBody& body, const Peer& peer) {
  switch (message.meta.control.command) {
    case Command::kBarrier:
      return OnBarrier(message.peer, message);
    case Command::kHeartbeat:
      return OnHeartbeat(message.peer, message, body);
    case Command::kAddNode:
      if (peer.native) return DropViolation(message, "a registration under an id");
      return shutdown_->OnSecondStore(peer);
    case Command::kAck:
      return job_->broadcast.Confirm(message.peer, message.meta.extension.sequence);
    case Command::kNone:
      if (message.meta.extension.op == Op::kLeave) return OnLeave(message.peer, message);
      return DropViolation(message, "unexpected operation");
    default:
      DropViolation(message, "unexpected control command");
  }
}

bool Inbox::TakeStock(const Message& message) {
  Resends::Verdict verdict = job_->resends.Take(message, kSchedulerId);
  if (verdict.ack) job_->outbox.SendUnnumbered(message.peer, std::move(*verdict.ack));
  return verdict.fresh;
}

void Inbox::OnBarrier(int32_t id, const Message& message) {
  BarrierRequest request;
  request.id = id;
  request.since = job_->scope.Now();
  request.group = message.meta.control.barrier_group;
  request.native = message.meta.native();
  request.last = message.meta.extension.op == Op::kLeave;
  request.sequence = message.meta.extension.sequence;
  request.app_id = message.meta.app_id;
  request.customer_id = message.meta.customer_id;
  if (!message.meta.request) return DropViolation(message, "a barrier's answer");
  Barriers& barriers = job_->barriers;
  if (const bs::Status check = barriers.Check(request); !check.ok()) {
    if (request.native) job_->outbox.SendAnswers(job_->peers, {{request, id, check}});
    return DropViolation(message, check.message());
  }
  job_->outbox.SendAnswers(job_->peers, barriers.Arrive(request));
  if (barriers.final_done()) stores_->Warn();
  if (!job_->running()) {
    job_->outbox.SendAnswers(job_->peers, barriers.ReleaseStock());
    return;
  }
  const std::string whom = barriers.WaitsFor(request);
  if (request.native && !whom.empty()) {
    job_->outbox.SendStatus(id, request.sequence, bs::Status::Ok(), whom);
  }
  shutdown_->CheckEnd();
}

void Inbox::OnReport(int32_t id, const Extension& extension) {
  if (extension.status == 0 || !job_->running()) return;
  job_->end({StatusOf(extension).code(), extension.text + " (reported by " + DescribeId(id) + ")"});
}

void Inbox::OnHeartbeat(int32_t id, const Message& message, const MemberBody& body) {
  const Extension& extension = message.meta.extension;
  Meta answer;
  answer.is_control = true;
  if (extension.op == Op::kVacate) OnUnreachable(id, message.meta, body.lost_incarnation);
  if (extension.op == Op::kState) detector_->ForgetOldReport(id);
  if (message.meta.native()) {
    if (extension.op == Op::kState) OnReport(id, extension);
    const bool over = !job_->running();
    answer =
        NativeControl(Command::kHeartbeat, over ? Op::kShutdown : Op::kState, extension.sequence);
    if (over) SetStatus(job_->verdict, &answer.extension);
  }
  answer.control.command = Command::kHeartbeat;
  answer.control.nodes = {job_->outbox.own()};
  job_->outbox.Send(id, std::move(answer));
}

void Inbox::OnLeave(int32_t id, const Message& message) {
  const Extension& extension = message.meta.extension;
  OnReport(id, extension);
  const std::string reason = extension.status == 0 ? ShortReason(extension.text) : "";
  const Peers::Outcome outcome =
      job_->peers.Apply(id, PeerEvent::kGoodbye, {.why = reason, .sequence = extension.sequence});
  if (outcome == Peers::Outcome::kViolation) DropViolation(message, "a goodbye before the list");
}

void Inbox::OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation) {
  if (meta.control.nodes.size() != 2 || !job_->running()) return;
  const int32_t other = meta.control.nodes[1].id;
  const Peer* const peer = job_->peers.Find(other);
  if (peer == nullptr || IsVacant(peer->state)) return;
  const std::string& why = meta.extension.text;
  if (job_->peers.Find(id)->node.role == Role::kWorker) {
    // No worker may judge another.
    if (peer->node.role != Role::kServer || !detector_->ReportsLiveServer(id, other)) return;
    places_->Lose(id, why + " (by " + Describe(peer->node) + ", which is there)");
    return;
  }
  const bool current = static_cast<uint32_t>(peer->incarnation) == lost_incarnation;
  if (peer->node.role != Role::kWorker || !current) return;
  places_->Lose(other, why + " (noticed by " + DescribeId(id) + ")");
}

void Inbox::DropViolation(const Message& message, const std::string& why) {
  job_->Drop(message, why);
  OnViolation(message.peer, why);
}

void Inbox::OnViolation(int32_t id, const std::string& what) {
  const Peer* const peer = job_->peers.Find(id);
  const bool counts = peer != nullptr && IsPresent(peer->state) && job_->running();
  if (counts && detector_->CountViolation(id)) places_->Lose(id, ViolationLimiter::Why(what));
}

}  // namespace ps
