// Coordinator: the end of the job - lost nodes, goodbyes, and the notification of all nodes.
#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "membership/coordinator/coordinator_impl.h"
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

}  // namespace

void Coordinator::Impl::Abort(const bs::Status& why) {
  if (phase_ == Phase::kGathering || phase_ == Phase::kRunning) EndJob(why);
}

void Coordinator::Impl::OnInboundEnded(int32_t id, bool torn) {
  const Peer* const peer = FindPeer(id);
  const bool stock = peer != nullptr && !peer->native && IsPresent(peer->state);
  detector_.OnInboundEnded(id, stock && phase_ == Phase::kRunning && !barriers_.final_done(),
                           torn && !resends_.SendsAgain(id));
}

void Coordinator::Impl::OnUnheard(int32_t id, const std::string& why) {
  const Peer* const peer = FindPeer(id);
  if (peer == nullptr || !IsPresent(peer->state) || phase_ != Phase::kRunning) return;
  if (StandsAlone(id, *peer)) {
    EndStockNode(peer->node, id, LostStatus(peer->node, why).message());
    transport_->Disconnect(id, kFarewell);
  }
  OnLost(id, why);
}

void Coordinator::Impl::OnLost(int32_t id, const std::string& why) {
  detector_.ForgetInbound(id);
  peers_.Apply(id, PeerEvent::kLost, {.why = why});
}

void Coordinator::Impl::ActOnEnd(PeerAction action, Peer* peer, const PeerDetails& details) {
  const int32_t id = peer->node.id;
  switch (action) {
    case PeerAction::kAnnounceGoodbye:
      return AnnounceGoodbye(*peer, details.sequence);
    case PeerAction::kConfirmGoodbye:
      EndBarriers(*peer);
      Respond(id, details.sequence);
      return MaybeFinish();
    case PeerAction::kRespond:
      Respond(id, details.sequence);
      return MaybeFinish();
    case PeerAction::kEndGoodbye:
      Respond(id, details.sequence);
      return CheckEnd();
    case PeerAction::kCheckFinish:
      return MaybeFinish();
    case PeerAction::kRetire:
      // The process ended without the destructor of MXNet's own store, in which it would leave.
      EndBarriers(*peer);
      return CheckEnd();
    case PeerAction::kVacate:
      Forget(id);
      return Vacate(peer, details.why);
    case PeerAction::kEndJob:
      Forget(id);
      return EndForLoss(*peer, details.why);
    case PeerAction::kCheckEnd:
      Forget(id);
      CheckEnd();
      return MaybeFinish();
    case PeerAction::kFailPlace:
      return FailPlace(*peer, details.why);
    default:
      return;
  }
}

void Coordinator::Impl::EndForLoss(const Peer& peer, const std::string& why) {
  const bool hoped = options_.rejoin_timeout > bs::Duration(0);
  std::string remedy;
  if (hoped && peer.node.role == Role::kServer) remedy = kServersAreNotReplaced;
  if (peer.node.role == Role::kWorker && why == kConnectionClosed) remedy = kCloseFirst;
  EndJob(LostStatus(peer.node, why + remedy));
}

void Coordinator::Impl::Forget(int32_t id) {
  detector_.ForgetConnection(id);
  broadcast_.Forget(id);
}

void Coordinator::Impl::EndBarriers(const Peer& peer) {
  Forget(peer.node.id);
  SendAnswers(barriers_.Leave(peer.node.id));
}

void Coordinator::Impl::CheckEnd() {
  if (phase_ != Phase::kRunning) return;
  bool stock = false;
  bool attached_gone = true;
  bool workers_gone = true;
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.node.role != Role::kWorker) continue;
    if (IsAttachedId(id)) {
      attached_gone = attached_gone && IsOver(peer.state);
    } else if (peer.native) {
      workers_gone = workers_gone && IsOver(peer.state);
    } else {
      stock = true;
    }
  }
  // Where worker 0's store is gone, MXNet's own servers get no command that lets them arrive.
  const bool stock_over = barriers_.final_done() || (attached_gone && StockWorkersAreOver());
  if (stock && !stock_over) return;
  if (attached_gone && (stock || workers_gone)) {
    EndJob(bs::Status::Ok());
    return;
  }
  if (!stock || final_timer_) return;
  final_timer_ = true;
  scope_.After(options_.timeout, [this] {
    if (phase_ != Phase::kRunning) return;
    log_.Warning("the stock nodes ended " + TextOf(options_.timeout) +
                 " ago, but attached workers have not left");
    EndJob(bs::Status::Ok());
  });
}

bool Coordinator::Impl::StockWorkersAreOver() const {
  bool one_left = false;
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.node.role != Role::kWorker || peer.native) continue;
    if (!HasLeft(peer.state) && !barriers_.waits_at_end(id)) return false;
    one_left = one_left || HasLeft(peer.state);
  }
  return one_left;
}

void Coordinator::Impl::EndJob(const bs::Status& verdict) {
  const bool gathering = phase_ == Phase::kGathering;
  // Where some have wrapped their stores, those that have not may be the reason.
  if (!verdict.ok() && attached_) WarnOfUnwrapped();
  phase_ = Phase::kEnding;
  verdict_ = verdict;
  report_.Stop();
  heartbeat_.Stop();
  if (verdict.ok()) {
    log_.Info("all nodes are done");
  } else {
    log_.Error("the job failed: " + verdict.message());
  }
  broadcast_.Restart(std::min(options_.retry_interval, kFarewellRetry));
  if (gathering) {
    TellGathered();
  } else {
    TellRunning();
    RefuseWaiting();
  }
  TellRegistering();
  // In good order the servers still have to say goodbye, which may take long.
  scope_.After(verdict.ok() ? options_.timeout : kFarewell, [this] {
    if (phase_ == Phase::kEnding) Finish();
  });
}

void Coordinator::Impl::TellGathered() {
  std::vector<int32_t> natives;
  for (const Roster::Entry& entry : roster_.entries()) {
    const int32_t peer = TemporaryPeer(entry.node, entry.native);
    if (entry.native) {
      natives.push_back(peer);
    } else {
      transport_->Connect(peer, AddressOf(entry.node), kSchedulerId);
      EndStockNode(entry.node, peer, verdict_.message());
    }
  }
  for (const auto& [rank, early] : early_) natives.push_back(TemporaryPeer(early.node, true));
  Meta news = NativeControl(Command::kNone, Op::kStatus, 0);
  SetStatus(verdict_, &news.extension);
  broadcast_.Send(natives, news, [this] {
    everyone_told_ = true;
    MaybeFinish();
  });
}

void Coordinator::Impl::TellRunning() {
  SendAnswers(barriers_.ReleaseStock());
  std::vector<int32_t> natives;
  for (const auto& [id, peer] : peers_.all()) {
    if (!IsPresent(peer.state)) continue;
    if (peer.native) {
      natives.push_back(id);
    } else if (StandsAlone(id, peer)) {
      alone_.push_back(id);
    }
  }
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  SetStatus(verdict_, &news.extension);
  broadcast_.Send(natives, news, [this] {
    everyone_told_ = true;
    MaybeFinish();
  });
}

void Coordinator::Impl::TellRegistering() {
  std::vector<std::pair<int32_t, uint64_t>> registering;
  for (const auto& [address, waits] : temporary_) {
    const Roster::Entry* const entry = roster_.Find(waits.node.hostname, waits.node.port);
    const bool native = entry != nullptr && entry->native;
    if (native) registering.emplace_back(waits.peer, entry->sequence);
  }
  for (const auto& [rank, early] : early_) {
    registering.emplace_back(TemporaryPeer(early.node, true), early.sequence);
  }
  for (const auto& [id, peer] : peers_.all()) {
    const bool unheard = peer.state == PeerState::kJoining || peer.state == PeerState::kListed;
    if (peer.native && unheard) registering.emplace_back(id, peer.sequence);
  }
  const auto tell = [this, registering] {
    for (const auto& [peer, sequence] : registering) SendStatus(peer, sequence, Over(), "");
  };
  tell();
  report_.Start(std::min(options_.retry_interval, kFarewellRetry), tell);
}

bool Coordinator::Impl::HasLeftBeside(const Peer& peer) const {
  const int32_t id = peer.node.id;
  if (peer.node.role != Role::kWorker || peer.native || IsAttachedId(id)) return false;
  // An attached worker may come beside one that died before the start, and leave.
  if (!barriers_.start_done()) return false;
  const Peer* const beside = peers_.Find(AttachedId(RankOf(id)));
  return beside != nullptr && HasLeft(beside->state);
}

bool Coordinator::Impl::StandsAlone(int32_t id, const Peer& peer) {
  const Peer* const beside = FindPeer(AttachedId(RankOf(id)));
  return peer.node.role != Role::kWorker || beside == nullptr || !IsPresent(beside->state);
}

void Coordinator::Impl::MaybeFinish() {
  if (phase_ != Phase::kEnding || !everyone_told_) return;
  if (!verdict_.ok()) {
    // A stock node that reaches its last barrier after this would wait there for ever.
    const bool stock_left = std::ranges::any_of(peers_.all(), [](const auto& entry) {
      return !entry.second.native && IsPresent(entry.second.state);
    });
    if (!stock_left) Finish();
    return;
  }
  bool all_gone = true;
  bool all_closed = true;
  for (const auto& [id, peer] : peers_.all()) {
    if (!peer.native) continue;
    all_gone = all_gone && !IsPresent(peer.state);
    all_closed = all_closed && HasNoProcess(peer.state);
  }
  if (!all_gone) return;
  // A node that left closes its end once it has our response; until then it may ask again.
  if (all_closed || farewell_over_) {
    Finish();
  } else if (!farewell_timer_) {
    farewell_timer_ = true;
    scope_.After(kFarewell, [this] {
      farewell_over_ = true;
      MaybeFinish();
    });
  }
}

void Coordinator::Impl::EndStockNodes() {
  for (const int32_t id : alone_) {
    const Peer& peer = *FindPeer(id);
    if (IsPresent(peer.state)) EndStockNode(peer.node, id, verdict_.message());
  }
}

void Coordinator::Impl::EndStockNode(const Node& node, int32_t peer, const std::string& why) {
  transport_->Send(MakeStockWord(peer, why));
  Message end = MakeStockEnd(peer);
  if (node.role == Role::kServer) {  // no response ends it, but a push of a key without values does
    end.meta.request = true;
    end.meta.pull = false;
    end.meta.push = true;
    end.data.emplace_back();
  }
  transport_->Send(std::move(end));
}

void Coordinator::Impl::Finish() {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  TellWaiting();
  if (const size_t untold = words_.size() + words_dropped_; untold > 0) {
    log_.Warning("not told that the job has ended: " + bs::CountOf(untold, "node") +
                 " that got no place; if one still waits, end it");
  }
  if (!verdict_.ok()) EndStockNodes();
  report_.Stop();
  heartbeat_.Stop();
  scope_.Post([this] { handler_.on_finished(verdict_); });
}

}  // namespace ps
