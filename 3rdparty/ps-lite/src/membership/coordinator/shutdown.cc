// Shutdown: goodbyes, and the notification of all nodes.
#include "membership/coordinator/shutdown.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ps/kv_server.h"
#include "wire/control.h"

namespace ps {
namespace {

constexpr const char* kServersAreNotReplaced =
    "; no process can take a server's place, which had sums or weights of its own: start the job "
    "again "
    "from your last checkpoint";

constexpr const char* kCloseFirst =
    " (it was killed, or its process ended without leaving: its own output says why; a script that "
    "ends by os._exit calls close() first)";

// The workers of a job by their kinds, and which of them have work left.
struct Work {
  bool stock = false;         // there are stock workers
  bool attached_over = true;  // no attached worker has work left
  bool workers_over = true;   // no other native worker has work left
};

Work WorkOf(const Peers& peers) {
  Work work;
  for (const auto& [id, peer] : peers.all()) {
    if (peer.node.role != Role::kWorker) continue;
    if (IsAttachedId(id)) {
      work.attached_over = work.attached_over && IsOver(peer.state);
    } else if (peer.native) {
      work.workers_over = work.workers_over && IsOver(peer.state);
    } else {
      work.stock = true;
    }
  }
  return work;
}

}  // namespace

Shutdown::Shutdown(JobState* job, const Parts& parts, std::function<void()> finished)
    : job_(job), parts_(parts), finished_(std::move(finished)), registering_(&job->scope) {}

bool Shutdown::Act(PeerAction action, Peer* peer, const PeerDetails& details) {
  using Method = void (Shutdown::*)(Peer*, const PeerDetails&);
  static constexpr std::array<std::pair<PeerAction, Method>, 8> kActions = {{
      {PeerAction::kAnnounceGoodbye, &Shutdown::AnnounceGoodbye},
      {PeerAction::kConfirmGoodbye, &Shutdown::ConfirmGoodbye},
      {PeerAction::kRespond, &Shutdown::Respond},
      {PeerAction::kEndGoodbye, &Shutdown::EndGoodbye},
      {PeerAction::kCheckFinish, &Shutdown::CheckFinish},
      {PeerAction::kRetire, &Shutdown::Retire},
      {PeerAction::kEndJob, &Shutdown::EndForLoss},
      {PeerAction::kCheckEnd, &Shutdown::CheckEndForLoss},
  }};
  for (const auto& [own, method] : kActions) {
    if (own != action) continue;
    (this->*method)(peer, details);
    return true;
  }
  return false;
}

void Shutdown::AnnounceGoodbye(Peer* peer, const PeerDetails& details) {
  const bool waits = details.why.empty() && !IsAttachedId(peer->node.id);
  if (waits && job_->options.reason_patience > bs::Duration(0)) {
    Forget(*peer);
    job_->scope.After(job_->options.reason_patience, [this, peer] {
      if (job_->running()) EndBarriers(*peer);
    });
  } else {
    EndBarriers(*peer, details.why);
  }
  job_->log.Info(Describe(peer->node) + " left" +
                 (details.why.empty() ? "" : ", it gave up: " + details.why));
  // The servers must know before the worker closes, or they would report it as lost.
  const int32_t id = peer->node.id;
  Meta news = NativeControl(Command::kNone, Op::kLeave, 0);
  news.extension.body = job_->outbox.BodyAbout(Op::kLeave, RankOf(id), 0);
  news.extension.text = details.why;
  news.control.nodes = {peer->node};
  job_->broadcast.Send(job_->peers.NativeServers(), news, [this, id, sequence = details.sequence] {
    job_->peers.Apply(id, PeerEvent::kGoodbyeKnown, {.sequence = sequence});
  });
}

void Shutdown::ConfirmGoodbye(Peer* peer, const PeerDetails& details) {
  EndBarriers(*peer, details.why);
  Respond(peer, details);
}

void Shutdown::Respond(Peer* peer, const PeerDetails& details) {
  job_->outbox.Send(peer->node.id, NativeControl(Command::kNone, Op::kLeave, details.sequence));
  MaybeFinish();
}

void Shutdown::EndGoodbye(Peer* peer, const PeerDetails& details) {
  job_->outbox.Send(peer->node.id, NativeControl(Command::kNone, Op::kLeave, details.sequence));
  CheckEnd();
}

void Shutdown::CheckFinish(Peer*, const PeerDetails&) { MaybeFinish(); }

// The process ended without the destructor of MXNet's own store, in which it would leave.
void Shutdown::Retire(Peer* peer, const PeerDetails&) {
  EndBarriers(*peer);
  CheckEnd();
}

void Shutdown::EndForLoss(Peer* peer, const PeerDetails& details) {
  Forget(*peer);
  const bool hoped = job_->options.rejoin_timeout > bs::Duration(0);
  std::string remedy;
  if (hoped && peer->node.role == Role::kServer) remedy = kServersAreNotReplaced;
  if (peer->node.role == Role::kWorker && details.why == kConnectionClosed) remedy = kCloseFirst;
  End(LostStatus(peer->node, details.why + remedy, job_->options.servers_in_workers));
}

void Shutdown::CheckEndForLoss(Peer* peer, const PeerDetails&) {
  Forget(*peer);
  CheckEnd();
  MaybeFinish();
}

void Shutdown::Forget(const Peer& peer) {
  parts_.detector->ForgetConnection(peer.node.id);
  job_->broadcast.Forget(peer.node.id);
}

void Shutdown::EndBarriers(const Peer& peer, const std::string& reason) {
  Forget(peer);
  job_->outbox.SendAnswers(job_->peers, job_->barriers.Leave(peer.node.id, reason));
}

void Shutdown::OnUnheard(int32_t id, const std::string& why) {
  const Peer* const peer = job_->peers.Find(id);
  if (peer == nullptr || !IsPresent(peer->state) || !job_->running()) return;
  if (StandsAlone(*peer)) {
    job_->outbox.EndStockNode(peer->node, id, LostStatus(peer->node, why).message());
    job_->transport->Disconnect(id, kFarewell);
  }
  parts_.places->Lose(id, why);
}

void Shutdown::OnSecondStore(const Peer& peer) {
  if (!job_->running()) return;
  // Its start barrier is a barrier of all nodes, and no other node joins it again.
  const auto why = bs::Status::FailedPrecondition(
      Describe(peer.node) +
      " makes a second dist store of MXNet's, which waits for ever: import bytescheduler.mxnet "
      "before the stores are created, and wrap each (kvs = ScheduledKVS(kvs))");
  // Also beside an attached worker, which cannot end a wait of MXNet's.
  job_->outbox.EndStockNode(peer.node, peer.node.id, why.message());
  End(why);
}

void Shutdown::CheckStragglers() {
  const bs::TimePoint now = job_->scope.Now();
  const Barriers& barriers = job_->barriers;
  if (!job_->running()) return;
  const std::string both = barriers.DescribeDeadlock(now - job_->options.report_interval);
  if (!both.empty()) {
    return End(bs::Status::FailedPrecondition(
        both +
        ": every worker must make the same calls in the same order (init, broadcast, "
        "barrier, and the end of the store)"));
  }
  const bs::TimePoint limit = now - job_->options.straggler_timeout;
  const BarrierRequest* const late = barriers.FindStockBefore(limit);
  if (late == nullptr) return;
  const std::string waits = DescribeId(late->id) + " has waited " + TextOf(now - late->since) +
                            " at a barrier for " + barriers.WaitsFor(*late);
  // MXNet's own stores wait there for ever, also at their end.
  const auto& replaced = parts_.places->stock_replaced();
  End(bs::Status::DeadlineExceeded(
      waits +
      (replaced && *replaced < limit
           ? ", in a job in which one of MXNet's own workers was replaced, so they may be at "
             "different barriers (BYTESCHEDULER_STRAGGLER_TIMEOUT): start the job again from "
             "your last checkpoint"
           : " (BYTESCHEDULER_STRAGGLER_TIMEOUT): if that one is only slow, make the setting "
             "longer")));
}

void Shutdown::CheckEnd() {
  if (!job_->running()) return;
  const Work work = WorkOf(job_->peers);
  if (work.stock && !StockWorkersAreOver(work.attached_over)) return;
  if (work.attached_over && (work.stock || work.workers_over)) {
    End(bs::Status::Ok());
  } else if (work.stock) {
    AwaitAttached();
  }
}

void Shutdown::AwaitAttached() {
  if (std::exchange(final_timer_, true)) return;
  job_->scope.After(job_->options.timeout, [this] {
    if (!job_->running()) return;
    job_->log.Warning("the stock nodes ended " + TextOf(job_->options.timeout) +
                      " ago, but attached workers have not left");
    End(bs::Status::Ok());
  });
}

bool Shutdown::StockWorkersAreOver(bool attached_over) const {
  if (job_->barriers.final_done()) return true;
  // A stock worker left without the final barrier, and all others did or wait there.  Where worker
  // 0's store is gone, MXNet's own servers get no command that lets them arrive.
  if (!attached_over) return false;
  bool one_left = false;
  for (const auto& [id, peer] : job_->peers.all()) {
    if (peer.node.role != Role::kWorker || peer.native) continue;
    if (!HasLeft(peer.state) && !job_->barriers.waits_at_end(id)) return false;
    one_left = one_left || HasLeft(peer.state);
  }
  return one_left;
}

bool Shutdown::HasLeftBeside(const Peer& peer) const {
  const int32_t id = peer.node.id;
  if (peer.node.role != Role::kWorker || peer.native || IsAttachedId(id)) return false;
  // An attached worker may come beside a stock worker that died before the start, and leave.
  if (!job_->barriers.start_done()) return false;
  const Peer* const beside = job_->peers.Find(AttachedId(RankOf(id)));
  return beside != nullptr && HasLeft(beside->state);
}

bool Shutdown::StandsAlone(const Peer& peer) const {
  const Peer* const beside = job_->peers.Find(AttachedId(RankOf(peer.node.id)));
  return peer.node.role != Role::kWorker || beside == nullptr || !IsPresent(beside->state);
}

void Shutdown::End(const bs::Status& verdict) {
  if (job_->over()) return;
  const bool gathering = job_->phase == Phase::kGathering;
  // Where some workers have wrapped their stores, the workers that have not may be the reason.
  if (!verdict.ok() && parts_.stores->attached()) parts_.stores->Warn();
  job_->phase = Phase::kEnding;
  job_->verdict = verdict;
  parts_.rendezvous->StopReports();
  job_->heartbeat.Stop();
  if (verdict.ok()) {
    job_->log.Info("all nodes are done");
  } else {
    job_->log.Error("the job failed: " + verdict.message());
  }
  const bs::Duration retry_interval = std::min(job_->options.retry_interval, kFarewellRetry);
  job_->broadcast.Restart(retry_interval);
  if (gathering) {
    Notify(Op::kStatus, parts_.rendezvous->End());
  } else {
    NotifyRunning();
    parts_.places->RefuseWaiting();
  }
  NotifyRegistering();
  // In good order the servers still have to say goodbye, which may take long.
  job_->scope.After(verdict.ok() ? job_->options.timeout : kFarewell, [this] {
    if (job_->phase == Phase::kEnding) Finish();
  });
}

void Shutdown::NotifyRunning() {
  job_->outbox.SendAnswers(job_->peers, job_->barriers.ReleaseStock());
  std::vector<int32_t> natives;
  for (const auto& [id, peer] : job_->peers.all()) {
    if (!IsPresent(peer.state)) continue;
    if (peer.native) {
      natives.push_back(id);
    } else if (StandsAlone(peer)) {
      alone_.push_back(id);
    }
  }
  Notify(Op::kShutdown, natives);
}

void Shutdown::Notify(Op op, const std::vector<int32_t>& natives) {
  Meta news = NativeControl(Command::kNone, op, 0);
  SetStatus(job_->verdict, &news.extension);
  job_->broadcast.Send(natives, news, [this] {
    everyone_notified_ = true;
    MaybeFinish();
  });
}

void Shutdown::NotifyRegistering() {
  auto registering = parts_.rendezvous->Registering();
  for (const auto& [id, peer] : job_->peers.all()) {
    const bool unheard = peer.state == PeerState::kJoining || peer.state == PeerState::kListed;
    if (peer.native && unheard) registering.emplace_back(id, peer.sequence);
  }
  const auto notify = [this, registering] {
    for (const auto& [peer, sequence] : registering) {
      job_->outbox.SendStatus(peer, sequence, job_->Over(), "");
    }
  };
  notify();
  registering_.Start(std::min(job_->options.retry_interval, kFarewellRetry), notify);
}

bool Shutdown::AllClosed() const {
  return std::ranges::all_of(job_->peers.all(), [](const auto& entry) {
    return !entry.second.native || HasNoProcess(entry.second.state);
  });
}

void Shutdown::MaybeFinish() {
  if (job_->phase != Phase::kEnding || !everyone_notified_) return;
  // Without a good end, a stock node that reaches its last barrier after this would wait there for
  // ever.  In good order each native node says goodbye.
  const bool stock = !job_->verdict.ok();
  const bool expected = std::ranges::any_of(job_->peers.all(), [stock](const auto& entry) {
    return entry.second.native != stock && IsPresent(entry.second.state);
  });
  if (expected) return;
  // A node that left closes its end once it has our response; until then it may ask again.
  if (stock || farewell_over_ || AllClosed()) {
    Finish();
  } else if (!std::exchange(farewell_timer_, true)) {
    job_->scope.After(kFarewell, [this] {
      farewell_over_ = true;
      MaybeFinish();
    });
  }
}

void Shutdown::Finish() {
  if (job_->phase == Phase::kFinished) return;
  job_->phase = Phase::kFinished;
  parts_.refusals->Finish();
  if (!job_->verdict.ok()) {
    for (const int32_t id : alone_) {
      const Peer& peer = *job_->peers.Find(id);
      if (IsPresent(peer.state)) job_->outbox.EndStockNode(peer.node, id, job_->verdict.message());
    }
  }
  parts_.rendezvous->StopReports();
  job_->heartbeat.Stop();
  registering_.Stop();
  job_->scope.Post([this] { finished_(); });
}

}  // namespace ps
