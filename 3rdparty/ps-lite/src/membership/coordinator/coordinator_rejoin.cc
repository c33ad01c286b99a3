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

bool Coordinator::Impl::MayReplace(const Peer& peer) const {
  if (options_.rejoin_timeout <= bs::Duration(0) || phase_ != Phase::kRunning) return false;
  // A later worker does not join the start barrier.  A later stock worker does not join the
  // barriers behind the initial values either, where others may wait.
  if (!barriers_.start_done() || barriers_.final_done()) return false;
  if (!peer.native && (barriers_.stock_waits() || roster_.CountId(peer.node.id) > 1)) return false;
  for (const auto& [id, server] : peers_.all()) {
    if (server.node.role == Role::kServer && !server.native) return false;
  }
  return peer.node.role == Role::kWorker && peer.incarnation + 1 < kMostIncarnations;
}

void Coordinator::Impl::Vacate(Peer* peer, const std::string& why) {
  const int32_t id = peer->node.id;
  const uint64_t incarnation = ++peer->incarnation;
  // A node that never heard that it has the place registers again.
  if (peer->native && detector_.WasConnected(id)) former_[id] = {peer->node, peer->sequence};
  transport_->Disconnect(id, bs::Duration(0));
  resends_.Forget(id);
  barriers_.Vacate(id);
  log_.Warning(LostStatus(peer->node, why).message() + "; its place is free for " +
               TextOf(options_.rejoin_timeout) + " (BYTESCHEDULER_REJOIN_TIMEOUT): start it again");
  Meta news = NativeControl(Command::kNone, Op::kVacate, 0);
  news.extension.body = Encode(Op::kVacate, SchedulerBody{.job = options_.job,
                                                          .next_incarnation = incarnation,
                                                          .native = peer->native,
                                                          .rank = RankOf(id)});
  news.control.nodes = {peer->node};
  const auto apply = [this, id, incarnation](PeerEvent event, const PeerDetails& details) {
    if (FindPeer(id)->incarnation == incarnation) peers_.Apply(id, event, details);
  };
  broadcast_.Send(peers_.NativeServers(), news, [apply] { apply(PeerEvent::kLossKnown, {}); });
  TakeHeld(peer);
  scope_.After(options_.rejoin_timeout,
               [apply, why] { apply(PeerEvent::kRejoinTimeout, {.why = why}); });
  // The stock worker of the same process is lost as well.  It reports nothing itself, and a stopped
  // process keeps its connections.
  if (IsAttachedId(id)) OnLost(WorkerId(RankOf(id)), why);
}

void Coordinator::Impl::FailPlace(const Peer& peer, const std::string& why) {
  const bs::Status lost = LostStatus(peer.node, why);
  EndJob({lost.code(), lost.message() + "; no worker took its place in " +
                           TextOf(options_.rejoin_timeout) + " (BYTESCHEDULER_REJOIN_TIMEOUT)"});
}

int32_t Coordinator::Impl::FindPlace(const Node& node, bool native, int32_t wanted_rank) const {
  int32_t place = kEmpty;
  for (const auto& [id, peer] : peers_.all()) {
    const bool free = peer.state == PeerState::kVacating || peer.state == PeerState::kVacant;
    if (!free || peer.native != native || IsAttachedId(id)) continue;
    if (wanted_rank >= 0 && RankOf(id) != wanted_rank) continue;
    // A worker that is started again on the same host gets its old place.
    if (place == kEmpty || peer.node.hostname == node.hostname) place = id;
  }
  return place;
}

bool Coordinator::Impl::TakePlace(const Node& node, bool native, uint64_t sequence,
                                  int32_t wanted_rank) {
  const Roster::Entry* const entry = roster_.Find(node.hostname, node.port);
  const bool in_job = entry != nullptr && !IsVacant(FindPeer(entry->node.id)->state);
  if (node.role != Role::kWorker || in_job) return false;
  const bool waits = std::ranges::any_of(peers_.all(), [&](const auto& place) {
    const auto& [id, peer] = place;
    return peer.state == PeerState::kClaimed && peer.native == native && !IsAttachedId(id) &&
           AddressOf(peer.successor.node) == AddressOf(node);
  });
  if (waits) return true;
  const int32_t place = FindPlace(node, native, wanted_rank);
  if (place == kEmpty) return false;
  peers_.Apply(place, PeerEvent::kComes, {.newcomer = {node, sequence}, .native = native});
  return true;
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
  for (const auto& [id, peer] : peers_.all()) peers_.Apply(id, PeerEvent::kJobEnds);
}

bool Coordinator::Impl::IsFormer(const Node& node, uint64_t sequence) const {
  // Another process of the address may have smaller numbers: its host may have restarted.
  return std::any_of(former_.begin(), former_.end(), [&](const auto& entry) {
    const Registrant& former = entry.second;
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
  const Late late = std::move(*fits);
  held_.erase(fits);
  peers_.Apply(id, PeerEvent::kComes, {.newcomer = late.early, .native = late.native});
}

void Coordinator::Impl::Fill(Peer* peer, const Registrant& next) {
  Node node = next.node;
  node.id = peer->node.id;
  // The successor may have ended meanwhile, and others wait for the place.
  Connect(peer, node, peer->native, next.sequence,
          std::max(options_.report_interval, options_.reconnect_grace));
  if (!peer->native) stock_replaced_ = scope_.Now();
  roster_.Replace(node, peer->sequence);
  log_.Info(Describe(node) + " takes the place of the one that was lost");
  NotifyServers(*peer, "");
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
  const bool waits = peer.state == PeerState::kClaimed && AddressOf(peer.successor.node) == address;
  const bool vacant = IsVacant(peer.state);
  if (vacant ? waits : AddressOf(peer.node) == address) return;
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  SetStatus(bs::Status::Unavailable(
                DescribeId(message.peer) + " (" + TextOf(AddressOf(nodes[0])) +
                ") was taken for lost, and its place " +
                (vacant ? "is free for another" : "is that of " + TextOf(AddressOf(peer.node)))),
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
         std::ranges::any_of(peers_.all(),
                             [&](const auto& peer) { return there(peer.second.node); }) ||
         std::ranges::any_of(early_, [&](const auto& early) { return there(early.second.node); });
}

void Coordinator::Impl::OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation) {
  if (meta.control.nodes.size() != 2 || phase_ != Phase::kRunning) return;
  const int32_t other = meta.control.nodes[1].id;
  const Peer* const peer = FindPeer(other);
  if (peer == nullptr || IsVacant(peer->state)) return;
  if (FindPeer(id)->node.role == Role::kWorker) {
    // No worker may judge another.
    if (peer->node.role != Role::kServer || !detector_.ReportsLiveServer(id, other)) return;
    OnLost(id, meta.extension.text + " (by " + Describe(peer->node) + ", which is there)");
    return;
  }
  const bool current = static_cast<uint32_t>(peer->incarnation) == lost_incarnation;
  if (peer->node.role != Role::kWorker || !current) return;
  OnLost(other, meta.extension.text + " (noticed by " + DescribeId(id) + ")");
}

}  // namespace ps
