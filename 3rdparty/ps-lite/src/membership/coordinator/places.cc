// Places: the actions of joining and of losses that can be made good.
#include "membership/coordinator/places.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/count_of.h"
#include "wire/control.h"

namespace ps {
namespace {

// True for a native heartbeat with a valid address, to which a message can be sent.
bool IsHeartbeat(const Meta& meta) {
  const std::vector<Node>& nodes = meta.control.nodes;
  return meta.native() && meta.control.command == Command::kHeartbeat && nodes.size() == 1 &&
         CheckNode(nodes[0]).ok();
}

}  // namespace

bool Places::Act(PeerAction action, Peer* peer, const PeerDetails& details) {
  using Method = void (Places::*)(Peer*, const PeerDetails&);
  static constexpr std::array<std::pair<PeerAction, Method>, 13> kActions = {{
      {PeerAction::kConnect, &Places::Connect},
      {PeerAction::kIntroduce, &Places::Introduce},
      {PeerAction::kAdmit, &Places::Admit},
      {PeerAction::kSendList, &Places::SendListAgain},
      {PeerAction::kTakeSequence, &Places::TakeSequence},
      {PeerAction::kClaim, &Places::Claim},
      {PeerAction::kAccept, &Places::Accept},
      {PeerAction::kFill, &Places::Fill},
      {PeerAction::kHold, &Places::Hold},
      {PeerAction::kDismiss, &Places::Dismiss},
      {PeerAction::kRefuseSuccessor, &Places::RefuseSuccessor},
      {PeerAction::kVacate, &Places::Vacate},
      {PeerAction::kFailPlace, &Places::Fail},
  }};
  for (const auto& [own, method] : kActions) {
    if (own != action) continue;
    (this->*method)(peer, details);
    return true;
  }
  return false;
}

bool Places::MayReplace(const Peer& peer) const {
  const MembershipOptions& options = job_->options;
  const Barriers& barriers = job_->barriers;
  if (options.rejoin_timeout <= bs::Duration(0) || !job_->running()) return false;
  // A later worker does not join the start barrier.  A later stock worker does not join the
  // barriers behind the initial values either, where other workers may wait.
  if (!barriers.start_done() || barriers.final_done()) return false;
  const bool shared = job_->roster.CountId(peer.node.id) > 1;
  if (!peer.native && (barriers.stock_waits() || shared)) return false;
  if (job_->roster.StockServer() != nullptr) return false;
  return peer.node.role == Role::kWorker && peer.incarnation + 1 < kMostIncarnations;
}

void Places::Connect(Peer* peer, const PeerDetails& details) {
  Assign(peer, details.newcomer, details.native, job_->options.timeout);
}

void Places::Assign(Peer* peer, const Registrant& holder, bool native, bs::Duration patience) {
  const int32_t id = peer->node.id;
  const Address address = AddressOf(holder.node);
  peer->node = holder.node;
  peer->node.id = id;
  peer->native = native;
  peer->sequence = holder.sequence;
  peer->successor = {};
  job_->transport->Connect(id, address, kSchedulerId);
  detector_->Begin(id, address, patience);
}

void Places::Introduce(Peer* peer, const PeerDetails& details) {
  stores_->OnAttached();
  Assign(peer, details.newcomer, true, job_->options.timeout);
  job_->barriers.Join(peer->node.id);
  NotifyServers(*peer, Describe(peer->node) + " attached");
}

void Places::NotifyServers(const Peer& newcomer, const std::string& text) {
  const int32_t id = newcomer.node.id;
  const Op op = IsAttachedId(id) ? Op::kAttach : Op::kRegister;
  Meta news = NativeControl(Command::kAddNode, op, 0);
  news.extension.body = job_->outbox.BodyAbout(op, RankOf(id), newcomer.incarnation);
  news.control.nodes = {newcomer.node};
  job_->broadcast.Send(job_->peers.NativeServers(), news,
                       [this, id, text, incarnation = newcomer.incarnation] {
                         if (job_->peers.Find(id)->incarnation != incarnation) return;
                         const auto outcome = job_->peers.Apply(id, PeerEvent::kNewcomerKnown);
                         if (outcome == Peers::Outcome::kDone && !text.empty())
                           job_->log.Info(text);
                       });
}

void Places::Admit(Peer* peer, const PeerDetails&) {
  detector_->OnHeard(peer->node.id);
  SendList(*peer);
}

void Places::SendListAgain(Peer* peer, const PeerDetails&) { SendList(*peer); }

void Places::SendList(const Peer& peer) {
  const int32_t id = peer.node.id;
  Meta meta;
  meta.is_control = true;
  if (peer.native) {
    const Op op = IsAttachedId(id) ? Op::kAttach : Op::kRegister;
    meta = NativeControl(Command::kAddNode, op, peer.sequence);
    const bool all_native = job_->roster.StockWorker() == nullptr;
    meta.extension.body = job_->outbox.BodyAbout(op, RankOf(id), peer.incarnation, all_native);
  }
  meta.control.command = Command::kAddNode;
  for (const Roster::Entry& entry : job_->roster.entries()) {
    meta.control.nodes.push_back(entry.node);
    Node& node = meta.control.nodes.back();
    node.is_recovery = entry.node.id == id && peer.incarnation > 0;
    if (peer.native) continue;
    node.link_rate = 0;  // no fields of a stock node's protocol
    node.first_hostname.clear();
  }
  if (IsAttachedId(id)) meta.control.nodes.push_back(peer.node);
  meta.control.nodes.push_back(job_->outbox.own());
  job_->outbox.Send(id, std::move(meta));
}

void Places::TakeSequence(Peer* peer, const PeerDetails& details) {
  peer->sequence = details.sequence;
}

void Places::Claim(Peer* peer, const PeerDetails& details) { peer->successor = details.newcomer; }

void Places::Accept(Peer* peer, const PeerDetails& details) { Replace(peer, details.newcomer); }

void Places::Fill(Peer* peer, const PeerDetails&) { Replace(peer, Registrant(peer->successor)); }

void Places::Replace(Peer* peer, const Registrant& next) {
  const MembershipOptions& options = job_->options;
  // The successor may have ended meanwhile, and other nodes wait for the place.
  Assign(peer, next, peer->native, std::max(options.report_interval, options.reconnect_grace));
  if (!peer->native) stock_replaced_ = job_->scope.Now();
  job_->roster.Replace(peer->node, peer->sequence);
  job_->log.Info(Describe(peer->node) + " takes the place of the one that was lost");
  NotifyServers(*peer, "");
}

void Places::Hold(Peer* peer, const PeerDetails& details) {
  const bool claimed = peer->state == PeerState::kClaimed;
  const Arrival arrival{
      .registrant = details.newcomer, .rank = RankOf(peer->node.id), .attaches = true};
  Hold(arrival, IsTaken(arrival, claimed ? peer->successor.node : peer->node));
}

bs::Status Places::IsTaken(const Arrival& arrival, const Node& holder) {
  return bs::Status::AlreadyExists(DescribeUnranked(arrival.registrant.node) +
                                   " cannot attach to worker " + std::to_string(arrival.rank) +
                                   ": " + DescribeUnranked(holder) +
                                   " is attached there (another process has this rank)");
}

void Places::Dismiss(Peer* peer, const PeerDetails& details) {
  const Message& message = *details.message;
  if (!IsHeartbeat(message.meta)) return;
  const Node& sender = message.meta.control.nodes[0];
  // The node that has the place now, or will, must not get a message for another of its address.
  const Address address = AddressOf(sender);
  const bool vacant = IsVacant(peer->state);
  const bool waits =
      peer->state == PeerState::kClaimed && AddressOf(peer->successor.node) == address;
  if (vacant ? waits : AddressOf(peer->node) == address) return;
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  SetStatus(bs::Status::Unavailable(
                DescribeId(message.peer) + " (" + TextOf(address) +
                ") was taken for lost, and its place " +
                (vacant ? "is free for another" : "is that of " + TextOf(AddressOf(peer->node)))),
            &news.extension);
  refusals_->Notify(sender, std::move(news));
}

void Places::DismissOfAnotherJob(const Meta& meta, uint64_t job) {
  // A heartbeat without a number is of no job, and a message without a number would be this job's.
  if (!IsHeartbeat(meta) || job == 0) return;
  const Node& node = meta.control.nodes[0];
  // A node of this job would receive nothing on its old connection any more.
  if (HasAddress(node)) return;
  Meta news = NativeControl(Command::kNone, Op::kShutdown, 0);
  news.extension.body = Encode(Op::kShutdown, SchedulerBody{.job = job});
  SetStatus(bs::Status::Unavailable("lost the scheduler node: another job has its address, " +
                                    TextOf(AddressOf(job_->outbox.own()))),
            &news.extension);
  refusals_->Notify(node, std::move(news));
}

bool Places::HasAddress(const Node& node) const {
  const auto there = [&](const Node& other) { return AddressOf(other) == AddressOf(node); };
  // The roster has no attached workers.
  return job_->roster.Find(node.hostname, node.port) != nullptr ||
         std::ranges::any_of(job_->peers.all(),
                             [&](const auto& peer) { return there(peer.second.node); }) ||
         std::ranges::any_of(job_->early,
                             [&](const auto& early) { return there(early.second.node); });
}

void Places::RefuseSuccessor(Peer* peer, const PeerDetails&) {
  refusals_->Refuse(peer->successor.node, peer->native, peer->successor.sequence, job_->Over());
}

void Places::Lose(int32_t id, const std::string& why) {
  detector_->ForgetInbound(id);
  job_->peers.Apply(id, PeerEvent::kLost, {.why = why});
}

void Places::Vacate(Peer* peer, const PeerDetails& details) {
  const int32_t id = peer->node.id;
  detector_->ForgetConnection(id);
  job_->broadcast.Forget(id);
  const uint64_t incarnation = ++peer->incarnation;
  // A node that never heard that it has the place registers again.
  if (peer->native && detector_->WasConnected(id)) former_[id] = {peer->node, peer->sequence};
  job_->transport->Disconnect(id, bs::Duration(0));
  job_->resends.Forget(id);
  job_->barriers.Vacate(id);
  const bs::Duration timeout = job_->options.rejoin_timeout;
  job_->log.Warning(LostStatus(peer->node, details.why).message() + "; its place is free for " +
                    TextOf(timeout) + " (BYTESCHEDULER_REJOIN_TIMEOUT): start it again");
  Meta news = NativeControl(Command::kNone, Op::kVacate, 0);
  news.extension.body = Encode(Op::kVacate, SchedulerBody{.job = job_->options.job,
                                                          .next_incarnation = incarnation,
                                                          .native = peer->native,
                                                          .rank = RankOf(id)});
  news.control.nodes = {peer->node};
  const auto apply = [this, id, incarnation](PeerEvent event, const std::string& why) {
    if (job_->peers.Find(id)->incarnation != incarnation) return;
    job_->peers.Apply(id, event, {.why = why});
  };
  job_->broadcast.Send(job_->peers.NativeServers(), news,
                       [apply] { apply(PeerEvent::kLossKnown, ""); });
  TakeHeld(peer);
  job_->scope.After(timeout, [apply, why = details.why] { apply(PeerEvent::kRejoinTimeout, why); });
  // The stock worker of the same process is lost as well.  It reports nothing itself, and a stopped
  // process keeps its connections.
  if (IsAttachedId(id)) Lose(WorkerId(RankOf(id)), details.why);
}

void Places::Fail(Peer* peer, const PeerDetails& details) {
  const bs::Status lost = LostStatus(peer->node, details.why);
  job_->end({lost.code(), lost.message() + "; no worker took its place in " +
                              TextOf(job_->options.rejoin_timeout) +
                              " (BYTESCHEDULER_REJOIN_TIMEOUT)"});
}

void Places::TakeHeld(Peer* peer) {
  const int32_t id = peer->node.id;
  const auto fits = std::find_if(held_.begin(), held_.end(), [&](const Arrival& held) {
    if (held.native != peer->native || held.attaches != IsAttachedId(id)) return false;
    return held.rank == RankOf(id) || (!held.attaches && held.rank < 0);
  });
  if (fits == held_.end()) return;
  const Arrival arrival = std::move(*fits);
  held_.erase(fits);
  job_->peers.Apply(id, PeerEvent::kComes,
                    {.newcomer = arrival.registrant, .native = arrival.native});
}

void Places::RefuseWaiting() {
  for (const Arrival& held : std::exchange(held_, {})) {
    refusals_->Refuse(held.registrant.node, held.native, held.registrant.sequence, job_->Over());
  }
  for (const auto& [id, peer] : job_->peers.all()) job_->peers.Apply(id, PeerEvent::kJobEnds);
}

void Places::Register(const Arrival& arrival) {
  const Node& node = arrival.node();
  const Roster::Entry* const entry = job_->roster.Find(node.hostname, node.port);
  const bool same =
      entry != nullptr && arrival.native && entry->native && entry->node.role == node.role;
  if (same) {
    if (IsOfHolder(entry->node.id, arrival)) return;
    Lose(entry->node.id, "connection closed, and another process has its address");
    if (!job_->running()) {
      refusals_->Refuse(node, true, arrival.registrant.sequence, job_->Over());
      return;
    }
  }
  if (TakePlace(arrival)) return;
  Hold(arrival, bs::Status::AlreadyExists(WhyTooLate(arrival)));
}

// Several processes may register with the same address, where one of them listens.  Until a message
// comes from the holder, each that goes on registering is sent the list; only the listener receives
// it.  A process that took the list and is gone has broken the connection by then.
bool Places::IsOfHolder(int32_t id, const Arrival& arrival) {
  Peers& peers = job_->peers;
  const uint64_t sequence = arrival.registrant.sequence;
  if (arrival.repeat) peers.Apply(id, PeerEvent::kAddressShared, {.sequence = sequence});
  const Peer& peer = *peers.Find(id);
  if (sequence == peer.sequence) {
    peers.Apply(id, PeerEvent::kAsksForList);
    return !IsVacant(peer.state);
  }
  const bool present = IsPresent(peer.state);
  if (IsVacant(peer.state) || (present && detector_->IsGone(id))) return false;
  if (present && detector_->HeardSinceBreak(id)) {
    job_->WarnOfSharedAddress(arrival.node(), Describe(peer.node));
  }
  return true;
}

std::string Places::WhyTooLate(const Arrival& arrival) const {
  const Node& node = arrival.node();
  std::string why = DescribeUnranked(node) + " came too late: the job has all its nodes already (" +
                    kOfAnotherJob + ")";
  if (node.role != Role::kWorker) return why;
  const auto& entries = job_->roster.entries();
  const auto neighbour = std::ranges::find_if(entries, [&](const Roster::Entry& entry) {
    return entry.node.role == Role::kWorker && entry.node.hostname == node.hostname;
  });
  if (neighbour != entries.end()) {
    why += "; " + Describe(neighbour->node) + " of the same host is one of them";
    if (!neighbour->native) {
      why += " (if it is of this process, wrap its store of MXNet's: kvs = ScheduledKVS(kvs))";
    }
  }
  const Peer* const holder = arrival.rank < 0 ? nullptr : job_->peers.Find(WorkerId(arrival.rank));
  if (holder != nullptr) {
    why += "; it asks for rank " + std::to_string(arrival.rank) + ", which " +
           Describe(holder->node) + " has";
  }
  return why;
}

int32_t Places::FindPlace(const Arrival& arrival) const {
  int32_t place = kEmpty;
  for (const auto& [id, peer] : job_->peers.all()) {
    const bool free = peer.state == PeerState::kVacating || peer.state == PeerState::kVacant;
    if (!free || peer.native != arrival.native || IsAttachedId(id)) continue;
    if (arrival.rank >= 0 && RankOf(id) != arrival.rank) continue;
    // A worker that is started again on the same host gets its old place.
    if (place == kEmpty || peer.node.hostname == arrival.node().hostname) place = id;
  }
  return place;
}

bool Places::IsSuccessor(const Arrival& arrival) const {
  return std::ranges::any_of(job_->peers.all(), [&](const auto& place) {
    const auto& [id, peer] = place;
    return peer.state == PeerState::kClaimed && peer.native == arrival.native &&
           !IsAttachedId(id) && AddressOf(peer.successor.node) == AddressOf(arrival.node());
  });
}

bool Places::TakePlace(const Arrival& arrival) {
  const Node& node = arrival.node();
  const Roster::Entry* const entry = job_->roster.Find(node.hostname, node.port);
  const bool in_job = entry != nullptr && !IsVacant(job_->peers.Find(entry->node.id)->state);
  if (node.role != Role::kWorker || in_job) return false;
  if (IsSuccessor(arrival)) return true;
  const int32_t place = FindPlace(arrival);
  if (place == kEmpty) return false;
  job_->peers.Apply(place, PeerEvent::kComes,
                    {.newcomer = arrival.registrant, .native = arrival.native});
  return true;
}

void Places::Attach(const Arrival& arrival) {
  Peers& peers = job_->peers;
  const int32_t id = AttachedId(arrival.rank);
  const uint64_t sequence = arrival.registrant.sequence;
  const Peer* const peer = peers.Find(id);
  if (peer != nullptr && AddressOf(peer->node) == AddressOf(arrival.node())) {
    if (arrival.repeat) peers.Apply(id, PeerEvent::kAddressShared, {.sequence = sequence});
    if (!IsVacant(peer->state) && sequence <= peer->sequence) {
      peers.Apply(id, PeerEvent::kAsksForList);  // else a late repeat
      return;
    }
  }
  peers.Apply(id, PeerEvent::kComes, {.newcomer = arrival.registrant});
}

bs::Status Places::CheckAttach(const Node& node, int32_t rank) const {
  const std::string who = DescribeUnranked(node);
  const int32_t num_workers = job_->options.num_workers;
  if (node.role != Role::kWorker || rank < 0 || rank >= num_workers) {
    return bs::Status::InvalidArgument(who + " cannot attach as rank " + std::to_string(rank) +
                                       ": the job has " + bs::CountOf(num_workers, "worker"));
  }
  if (job_->phase == Phase::kGathering) return bs::Status::Ok();
  const Peer* const beside = job_->peers.Find(WorkerId(rank));
  if (beside != nullptr && beside->native) {
    return bs::Status::AlreadyExists(who + " cannot attach to worker " + std::to_string(rank) +
                                     ": that is a native worker itself");
  }
  if (beside != nullptr && HasLeft(beside->state)) {
    return bs::Status::Unavailable(who + " cannot attach to worker " + std::to_string(rank) +
                                   ": that has left the job");
  }
  if (const Node* const server = job_->roster.StockServer()) {
    return bs::Status::NotFound(who + " cannot attach: " + Describe(*server) +
                                " is a stock server");
  }
  return bs::Status::Ok();
}

bool Places::IsFormer(const Node& node, uint64_t sequence) const {
  // Another process of the address may have smaller numbers: its host may have restarted.
  return std::ranges::any_of(former_, [&](const auto& entry) {
    const Registrant& former = entry.second;
    return former.sequence == sequence && AddressOf(former.node) == AddressOf(node);
  });
}

bool Places::MayWait(const Arrival& arrival) const {
  const Node& node = arrival.node();
  const bool stock_in_job =
      !arrival.native && job_->roster.Find(node.hostname, node.port) != nullptr;
  return job_->options.rejoin_timeout > bs::Duration(0) && job_->running() &&
         node.role == Role::kWorker && !stock_in_job &&
         held_.size() < static_cast<size_t>(job_->options.num_workers);
}

void Places::Hold(const Arrival& arrival, const bs::Status& why) {
  const Node& node = arrival.node();
  const auto refuse = [this, why](const Arrival& held) {
    refusals_->Refuse(held.node(), held.native, held.registrant.sequence, why);
  };
  const auto same = [address = AddressOf(node),
                     sequence = arrival.registrant.sequence](const Arrival& held) {
    return AddressOf(held.node()) == address && held.registrant.sequence == sequence;
  };
  if (std::ranges::any_of(held_, same)) return;        // a repeat
  std::erase_if(held_, [&node](const Arrival& held) {  // which ended, and started again
    return AddressOf(held.node()) == AddressOf(node);
  });
  if (!MayWait(arrival)) return refuse(arrival);
  job_->log.Info(DescribeUnranked(node) + " came, and no place is free yet");
  const MembershipOptions& options = job_->options;
  const bs::Duration noticed = options.heartbeat_timeout + 2 * options.heartbeat_interval;
  job_->scope.After(noticed + options.reconnect_grace, [this, same, refuse] {
    const auto waits = std::ranges::find_if(held_, same);
    if (waits == held_.end()) return;
    const Arrival held = std::move(*waits);
    held_.erase(waits);
    refuse(held);
  });
  held_.push_back(arrival);
}

}  // namespace ps
