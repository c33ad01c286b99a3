// Coordinator: the place of a lost worker stays free for a while, and another worker takes it.
//
// 1. Every server confirms the loss; it forgets the lost worker's unfinished requests.
// 2. Another worker may have the place.
// 3. Every server confirms that it knows the newcomer.
// 4. The newcomer is notified that it is in the job.
#include <algorithm>
#include <utility>

#include "membership/coordinator/coordinator_impl.h"
#include "wire/control.h"

namespace ps {

bool Coordinator::Impl::MayReplace(int32_t id, const Peer& peer) const {
  if (options_.rejoin_timeout <= bs::Duration(0) || phase_ != Phase::kRunning) return false;
  // A later worker does not join the start barrier.  A later stock worker does not join the
  // barriers behind the initial values either, where others may wait.
  if (!barriers_.start_done() || barriers_.final_done()) return false;
  if (!peer.native && (barriers_.stock_waits() || roster_.CountId(id) > 1)) return false;
  for (const auto& [other, server] : peers_) {
    if (server.node.role == Role::kServer && !server.native) return false;
  }
  return peer.node.role == Role::kWorker && peer.incarnation + 1 < kMostIncarnations;
}

void Coordinator::Impl::Vacate(Peer* peer, const std::string& why) {
  const int32_t id = peer->node.id;
  peer->vacant = true;
  peer->vacated = false;
  const uint64_t incarnation = ++peer->incarnation;
  // A node that never heard that it has the place registers again.
  if (peer->native && peer->connected) former_[id] = {peer->node, peer->sequence};
  transport_->Disconnect(id, bs::Duration(0));
  resends_.Forget(id);
  barriers_.Vacate(id);
  const bs::Status lost = LostStatus(peer->node, why);
  log_.Warning(lost.message() + "; its place is free for " + TextOf(options_.rejoin_timeout) +
               " (BYTESCHEDULER_REJOIN_TIMEOUT): start it again");
  Meta news = NativeControl(Command::kNone, Op::kVacate, 0);
  news.extension.body = Encode(Op::kVacate, SchedulerBody{.job = options_.job,
                                                          .next_incarnation = incarnation,
                                                          .native = peer->native,
                                                          .rank = RankOf(id)});
  news.control.nodes = {peer->node};
  broadcast_.Send(NativeServers(), news, [this, id, incarnation] { OnVacated(id, incarnation); });
  TakeHeld(peer);
  scope_.After(options_.rejoin_timeout, [this, id, incarnation, lost] {
    const Peer* const place = FindPeer(id);
    if (phase_ != Phase::kRunning || !place->vacant || place->incarnation != incarnation) return;
    EndJob({lost.code(), lost.message() + "; no worker took its place in " +
                             TextOf(options_.rejoin_timeout) + " (BYTESCHEDULER_REJOIN_TIMEOUT)"});
  });
}

void Coordinator::Impl::OnVacated(int32_t id, uint64_t incarnation) {
  Peer* const peer = FindPeer(id);
  if (phase_ != Phase::kRunning || !peer->vacant || peer->incarnation != incarnation) return;
  peer->vacated = true;
  if (peer->successor) Fill(peer);
}

bool Coordinator::Impl::TakePlace(const Node& node, bool native, uint64_t sequence,
                                  int32_t wanted_rank) {
  const Roster::Entry* const entry = roster_.Find(node.hostname, node.port);
  const bool in_job = entry != nullptr && !FindPeer(entry->node.id)->vacant;
  if (node.role != Role::kWorker || in_job) return false;
  Peer* place = nullptr;
  for (auto& [id, peer] : peers_) {
    if (!peer.vacant || peer.native != native || IsAttachedId(id)) continue;
    if (peer.successor && AddressOf(peer.successor->node) == AddressOf(node)) return true;
    if (peer.successor || (wanted_rank >= 0 && RankOf(id) != wanted_rank)) continue;
    // A worker that is started again on the same host gets its old place.
    if (place == nullptr || peer.node.hostname == node.hostname) place = &peer;
  }
  if (place == nullptr) return false;
  TakePlaceOf(place, node, sequence);
  return true;
}

void Coordinator::Impl::TakePlaceOf(Peer* peer, const Node& node, uint64_t sequence) {
  peer->successor = Early{node, sequence};
  if (peer->vacated) Fill(peer);
}

void Coordinator::Impl::Hold(Late late, const bs::Status& why) {
  const Node& node = late.early.node;
  const auto refuse = [this, why](const Late& who) {
    Refuse(who.early.node, who.native, who.early.sequence, why);
  };
  const auto same = [address = AddressOf(node), sequence = late.early.sequence](const Late& held) {
    return AddressOf(held.early.node) == address && held.early.sequence == sequence;
  };
  const bool stock_in_job = !late.native && roster_.Find(node.hostname, node.port) != nullptr;
  const bool may_wait = options_.rejoin_timeout > bs::Duration(0) && phase_ == Phase::kRunning &&
                        node.role == Role::kWorker && !stock_in_job;
  if (std::any_of(held_.begin(), held_.end(), same)) return;  // a repeat
  std::erase_if(held_, [&node](const Late& held) {            // which ended, and started again
    return AddressOf(held.early.node) == AddressOf(node);
  });
  if (!may_wait || held_.size() >= static_cast<size_t>(options_.num_workers)) {
    refuse(late);
    return;
  }
  log_.Info(DescribeUnranked(node) + " came, and no place is free yet");
  const bs::Duration noticed = options_.heartbeat_timeout + 2 * options_.heartbeat_interval;
  scope_.After(noticed + options_.reconnect_grace, [this, same, refuse] {
    const auto waits = std::find_if(held_.begin(), held_.end(), same);
    if (waits == held_.end()) return;
    const Late who = std::move(*waits);
    held_.erase(waits);
    refuse(who);
  });
  held_.push_back(std::move(late));
}

void Coordinator::Impl::RefuseWaiting() {
  for (const Late& late : std::exchange(held_, {})) {
    Refuse(late.early.node, late.native, late.early.sequence, Over());
  }
  for (auto& [id, peer] : peers_) {
    const std::optional<Early> next = std::exchange(peer.successor, std::nullopt);
    if (next) Refuse(next->node, peer.native, next->sequence, Over());
  }
}

bool Coordinator::Impl::IsGone(const Peer& peer, uint64_t sequence) const {
  if (sequence == peer.sequence || peer.gone() || !peer.broke) return false;
  // A live node sends a heartbeat when it is connected again.
  const bs::Duration patience = std::max(options_.reconnect_grace, 2 * options_.heartbeat_interval);
  // Messages from before the kill may be read after the connection has broken.
  const bs::Duration late = options_.heartbeat_interval / 4;
  return peer.last_heard <= *peer.broke + late && scope_.Now() >= *peer.broke + patience;
}

bool Coordinator::Impl::IsFormer(const Node& node, uint64_t sequence) const {
  // Another process of the address may have smaller numbers: its host may have restarted.
  return std::any_of(former_.begin(), former_.end(), [&](const auto& entry) {
    const Early& former = entry.second;
    return former.sequence == sequence && AddressOf(former.node) == AddressOf(node);
  });
}

void Coordinator::Impl::TakeHeld(Peer* peer) {
  const int32_t id = peer->node.id;
  const auto fits = std::find_if(held_.begin(), held_.end(), [&](const Late& held) {
    if (held.native != peer->native) return false;
    if (IsAttachedId(id)) return held.attach_rank == RankOf(id);
    return held.attach_rank < 0 && (held.wanted_rank < 0 || held.wanted_rank == RankOf(id));
  });
  if (fits == held_.end()) return;
  const Early early = fits->early;
  held_.erase(fits);
  TakePlaceOf(peer, early.node, early.sequence);
}

void Coordinator::Impl::Fill(Peer* peer) {
  const bool native = peer->native;
  const uint64_t incarnation = peer->incarnation;
  const Early next = peer->successor.value_or(Early{});
  Node node = next.node;
  node.id = peer->node.id;
  AddPeer(node, native, next.sequence);
  // The successor may have ended meanwhile, and others wait for the place.
  reconnect_timer_.Watch(node.id, std::max(options_.report_interval, options_.reconnect_grace));
  Peer& fresh = peers_[node.id];
  fresh.incarnation = incarnation;
  fresh.in_list = false;
  if (!native) stock_replaced_ = scope_.Now();
  roster_.Replace(node, next.sequence);
  log_.Info(Describe(node) + " takes the place of the one that was lost");
  const Op op = IsAttachedId(node.id) ? Op::kAttach : Op::kRegister;
  Meta news = NativeControl(Command::kAddNode, op, 0);
  news.extension.body = BodyAbout(op, RankOf(node.id), incarnation);
  news.control.nodes = {node};
  broadcast_.Send(NativeServers(), news, [this, id = node.id, incarnation] {
    Peer* const place = FindPeer(id);
    if (phase_ != Phase::kRunning || place->incarnation != incarnation || place->gone()) return;
    place->in_list = true;
    place->last_heard = scope_.Now();
    SendList(id);
  });
}

namespace {

// True for a native heartbeat with a valid address, to which a message can be sent.
bool IsHeartbeat(const Meta& meta) {
  const std::vector<Node>& nodes = meta.control.nodes;
  return meta.native() && meta.control.command == Command::kHeartbeat && nodes.size() == 1 &&
         CheckNode(nodes[0]).ok();
}

}  // namespace

void Coordinator::Impl::Dismiss(const Peer& peer, const Message& message) {
  const std::vector<Node>& nodes = message.meta.control.nodes;
  if (!IsHeartbeat(message.meta)) return;
  // The node that has the place now, or will, must not get a message for another of its address.
  const Address address = AddressOf(nodes[0]);
  const bool waits = peer.successor && AddressOf(peer.successor->node) == address;
  if (peer.vacant ? waits : AddressOf(peer.node) == address) return;
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  SetStatus(bs::Status::Unavailable(DescribeId(message.peer) + " (" + TextOf(AddressOf(nodes[0])) +
                                    ") was taken for lost, and its place " +
                                    (peer.vacant ? "is free for another"
                                                 : "is that of " + TextOf(AddressOf(peer.node)))),
            &news.extension);
  TellOnce({nodes[0], std::move(news)});
}

void Coordinator::Impl::DismissOfAnotherJob(const Meta& meta, uint64_t job) {
  // A heartbeat without a number is of no job, and a message without one would be this job's.
  if (!IsHeartbeat(meta) || job == 0) return;
  const Node& node = meta.control.nodes[0];
  // A node of this job would receive nothing on its old connection any more.
  if (HasAddress(node)) return;
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  news.extension.body = Encode(Op::kShutdown, SchedulerBody{.job = job});
  SetStatus(bs::Status::Unavailable("lost the scheduler node: another job has its address, " +
                                    TextOf(AddressOf(OwnEntry()))),
            &news.extension);
  TellOnce({node, std::move(news)});
}

bool Coordinator::Impl::HasAddress(const Node& node) const {
  const auto there = [&](const Node& other) { return AddressOf(other) == AddressOf(node); };
  // The roster has no attached workers.
  return roster_.Find(node.hostname, node.port) != nullptr ||
         std::ranges::any_of(peers_, [&](const auto& peer) { return there(peer.second.node); }) ||
         std::ranges::any_of(early_, [&](const auto& early) { return there(early.second.node); });
}

void Coordinator::Impl::OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation) {
  if (meta.control.nodes.size() != 2 || phase_ != Phase::kRunning) return;
  const int32_t other = meta.control.nodes[1].id;
  const Peer* const peer = FindPeer(other);
  if (peer == nullptr || peer->vacant) return;
  if (FindPeer(id)->node.role == Role::kWorker) {
    if (peer->node.role == Role::kServer) OnUnreachableServer(id, *peer, meta.extension.text);
    return;  // no worker may judge another
  }
  const bool current = static_cast<uint32_t>(peer->incarnation) == lost_incarnation;
  if (peer->node.role != Role::kWorker || !current) return;
  OnLost(other, meta.extension.text + " (noticed by " + DescribeId(id) + ")");
}

// The report is repeated with each heartbeat.  A server that is lost itself sends nothing more.
void Coordinator::Impl::OnUnreachableServer(int32_t id, const Peer& server,
                                            const std::string& why) {
  Peer* const peer = FindPeer(id);
  if (!peer->unreachable_since) peer->unreachable_since = scope_.Now();
  peer->heartbeats_since_report = 0;
  if (server.last_heard <= *peer->unreachable_since + options_.reconnect_grace) return;
  OnLost(id, why + " (by " + Describe(server.node) + ", which is there)");
}

void Coordinator::Impl::ForgetOldReport(Peer* peer) {
  // A report may be lost on its way, or come behind the heartbeat.
  constexpr int kMostMissed = 3;
  if (peer->unreachable_since && ++peer->heartbeats_since_report > kMostMissed)
    peer->unreachable_since.reset();
}

}  // namespace ps
