// Coordinator: registration, attached workers, and connections to nodes that wait for a place.
#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "membership/coordinator/coordinator_impl.h"
#include "wire/control.h"

namespace ps {
namespace {

constexpr size_t kMostUnreached = 3;  // that reports name

}  // namespace

void Coordinator::Impl::Start(Handler handler) {
  handler_ = std::move(handler);
  transport_->Start(TransportHandler());
  Address own = options_.root;
  if (!options_.bind_host.empty()) own.host = options_.bind_host;
  transport_->Bind(own, [this](const bs::Result<int32_t>& port) {
    if (!port.ok()) {
      verdict_ = port.status();
      Finish();
      return;
    }
    root_.port = port.value();
    log_.Info("listening on " + TextOf(root_));
    scope_.Post([this] { handler_.on_listening(root_.port); });
  });
  report_.Start(options_.report_interval, [this] { Report(); });
  scope_.After(options_.timeout, [this] {
    if (phase_ != Phase::kGathering) return;
    EndJob(bs::Status::DeadlineExceeded("rendezvous: after " + TextOf(options_.timeout) +
                                        " still " + roster_.Missing() + Refused()));
  });
}

void Coordinator::Impl::OnRegister(const Message& message) {
  const Meta& meta = message.meta;
  if (meta.control.nodes.size() != 1 || meta.control.command == Command::kNone) {
    Drop(message, "no registration");
    return;
  }
  const Node& node = meta.control.nodes.front();
  if (const bs::Status check = CheckNode(node); !check.ok()) {
    Drop(message, check.message());
    return;
  }
  const bs::Result<MemberBody> said = DecodeMemberBody(meta.extension.body);
  if (!said.ok()) {
    Drop(message, said.status().message());
    return;
  }
  const Op op = meta.extension.op;
  const bool repeat = meta.native() && meta.control.command == Command::kAck &&
                      (op == Op::kRegister || op == Op::kAttach);
  if (meta.control.command == Command::kAddNode || repeat) {
    Register(node, meta.extension, said.value(), repeat);
  } else if (meta.control.command == Command::kAck && meta.native()) {
    const auto it = temporary_.find(TextOf(AddressOf(node)));
    if (it != temporary_.end()) broadcast_.Confirm(it->second.peer, meta.extension.sequence);
  } else {
    Drop(message, "control of a node that has not registered");
  }
}

void Coordinator::Impl::Register(const Node& node, const Extension& extension,
                                 const MemberBody& said, bool repeat) {
  const bool native = extension.version != 0;
  const uint64_t sequence = extension.sequence;
  if (phase_ == Phase::kEnding || phase_ == Phase::kFinished) {
    Refuse(node, native, sequence, Over());
    return;
  }
  if (native && extension.version != kExtensionVersion) {
    Refuse(node, native, sequence,
           bs::Status::InvalidArgument(DescribeUnranked(node) + " speaks version " +
                                       std::to_string(extension.version) + ", the job version " +
                                       std::to_string(kExtensionVersion)));
    return;
  }
  if (native && IsFormer(node, sequence)) return;
  if (native && SettingsDiffer(node, sequence, said.settings)) return;
  if (extension.op == Op::kAttach) {
    OnAttach(node, sequence, said.rank, repeat);
    return;
  }
  if (phase_ == Phase::kRunning) {
    OnLateRegister(node, native, sequence, said.rank, repeat);
    return;
  }
  if (native && said.yields && StockServer() != nullptr) {
    Refuse(node, true, sequence, ServersAreStock(node, *StockServer()));
    return;
  }
  const Roster::Entry* const same = roster_.Find(node.hostname, node.port);
  if (native && same != nullptr && same->native && same->node.role == node.role &&
      same->sequence != sequence) {
    WarnOfSharedAddress(node, DescribeUnranked(same->node));
  }
  const Roster::Outcome outcome = roster_.Add(node, native, sequence, said.rank);
  if (outcome.verdict == Roster::Verdict::kRefused && !ComesAgain(node, native)) {
    Refuse(node, native, sequence, outcome.why);
  }
  // A stock node registers once, so this is a process that was started again at its address.
  if (outcome.verdict == Roster::Verdict::kRepeated && !native) {
    Watch(TemporaryPeer(node, native), node, native);
  }
  if (outcome.verdict != Roster::Verdict::kAdded) return;
  if (native && said.yields) yielding_[TextOf(AddressOf(node))] = {node, sequence};
  if (!native && node.role == Role::kServer) RefuseYielding(node);
  log_.Info(DescribeUnranked(node) + " registered; " + roster_.Waiting());
  if (!roster_.complete()) {
    WatchSoon(node, native);
    return;
  }
  if (const bs::Status check = CheckRing(); check.ok()) {
    CompleteRendezvous();
  } else {
    EndJob(check);
  }
}

void Coordinator::Impl::WarnOfSharedAddress(const Node& node, const std::string& first) {
  limited_log_.Warning("another process registers at the address of " + first +
                       ": if that one still runs, give each " + std::string(NameOf(node.role)) +
                       " a DMLC_NODE_HOST and DMLC_PORT that no other has");
}

// Several processes may register with one address, where one of them listens.  Until a message
// comes from the holder, each that goes on registering is sent the list; only the listener receives
// it.  A process that took the list and is gone has broken the connection by then.
bool Coordinator::Impl::IsOfHolder(int32_t id, const Node& node, uint64_t sequence, bool repeat) {
  if (repeat) peers_.Apply(id, PeerEvent::kAddressShared, {.sequence = sequence});
  const Peer& peer = *FindPeer(id);
  if (sequence == peer.sequence) {
    peers_.Apply(id, PeerEvent::kAsksForList);
    return !IsVacant(peer.state);
  }
  const bool present = IsPresent(peer.state);
  if (IsVacant(peer.state) || (present && detector_.IsGone(id))) return false;
  if (present && detector_.HeardSinceBreak(id)) WarnOfSharedAddress(node, Describe(peer.node));
  return true;
}

void Coordinator::Impl::OnLateRegister(const Node& node, bool native, uint64_t sequence,
                                       int32_t wanted_rank, bool repeat) {
  const Roster::Entry* const entry = roster_.Find(node.hostname, node.port);
  if (native && entry != nullptr && entry->native && entry->node.role == node.role) {
    if (IsOfHolder(entry->node.id, node, sequence, repeat)) return;
    OnLost(entry->node.id, "connection closed, and another process has its address");
    if (phase_ != Phase::kRunning) {
      Refuse(node, native, sequence, Over());
      return;
    }
  }
  if (TakePlace(node, native, sequence, wanted_rank)) return;
  std::string why = DescribeUnranked(node) + " came too late: the job has all its nodes already (" +
                    kOfAnotherJob + ")";
  for (const Roster::Entry& other : roster_.entries()) {
    if (other.node.role != Role::kWorker || other.node.role != node.role) continue;
    if (other.node.hostname != node.hostname) continue;
    why += "; " + Describe(other.node) + " of the same host is one of them";
    if (!other.native) {
      why += " (if it is of this process, wrap its store of MXNet's: kvs = ScheduledKVS(kvs))";
    }
    break;
  }
  if (const Peer* const holder = FindPeer(WorkerId(wanted_rank));
      wanted_rank >= 0 && node.role == Role::kWorker && holder != nullptr) {
    why += "; it asks for rank " + std::to_string(wanted_rank) + ", which " +
           Describe(holder->node) + " has";
  }
  Hold({{node, sequence}, native, -1, wanted_rank}, bs::Status::AlreadyExists(why));
}

void Coordinator::Impl::Report() {
  const std::string text = roster_.Waiting() + Refused();
  log_.Info(text);
  for (const Roster::Entry& entry : roster_.entries()) {
    if (!entry.native) continue;
    SendStatus(TemporaryPeer(entry.node, true), entry.sequence, bs::Status::Ok(), text);
  }
  for (const auto& [rank, early] : early_) {
    SendStatus(TemporaryPeer(early.node, true), early.sequence, bs::Status::Ok(), text);
  }
}

const Node* Coordinator::Impl::StockServer() const {
  const auto& all = roster_.entries();
  const auto found = std::find_if(all.begin(), all.end(), [](const Roster::Entry& entry) {
    return entry.node.role == Role::kServer && !entry.native;
  });
  return found == all.end() ? nullptr : &found->node;
}

bs::Status Coordinator::Impl::ServersAreStock(const Node& worker, const Node& server) {
  return bs::Status::NotFound(DescribeUnranked(worker) + " is native, and " +
                              DescribeUnranked(server) +
                              " is MXNet's own: it needs a dist store of MXNet's");
}

void Coordinator::Impl::RefuseYielding(const Node& server) {
  for (const auto& [address, early] : std::exchange(yielding_, {})) {
    const Roster::Entry* const entry = roster_.Find(early.node.hostname, early.node.port);
    if (entry == nullptr || !entry->native) continue;
    const uint64_t sequence = entry->sequence;
    RemoveNode(early.node);
    Refuse(early.node, true, sequence, ServersAreStock(early.node, server));
  }
}

void Coordinator::Impl::RemoveNode(const Node& node) {
  roster_.Remove(AddressOf(node));
  const auto temporary = temporary_.find(TextOf(AddressOf(node)));
  if (temporary == temporary_.end()) return;
  temporary_reconnect_timer_.Forget(temporary->second.peer);
  transport_->Disconnect(temporary->second.peer, bs::Duration(0));
  temporary_.erase(temporary);
}

bs::Status Coordinator::Impl::CheckRing() const {
  const auto find = [this](Role role, bool native) {
    const auto& all = roster_.entries();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Roster::Entry& entry) {
      return entry.node.role == role && entry.native == native;
    });
    return found == all.end() ? nullptr : &found->node;
  };
  const Node* const native = find(Role::kWorker, true);
  const Node* const server = find(Role::kServer, false);
  const Node* const worker = find(Role::kWorker, false);
  const Node* const stock = server != nullptr ? server : worker;
  if (native == nullptr || stock == nullptr) return bs::Status::Ok();
  return bs::Status::FailedPrecondition(
      DescribeUnranked(*stock) + " is MXNet's own, and " + DescribeUnranked(*native) +
      " is a native worker: " +
      (stock == server ? "start our servers (bslaunch), or wrap a dist store in the workers "
                         "(BYTESCHEDULER_BACKEND=kvstore)"
                       : "make the stores of all workers alike, each a dist store of MXNet's, "
                         "wrapped in all or in none, or none of them"));
}

void Coordinator::Impl::CompleteRendezvous() {
  phase_ = Phase::kRunning;
  report_.Stop();
  const std::set<std::string> reached = CloseTemporaryPeers();
  roster_.AssignIds();
  std::vector<Node> nodes;
  for (const Roster::Entry& entry : roster_.entries()) {
    nodes.push_back(entry.node);
    peers_.Apply(entry.node.id, PeerEvent::kAllThere,
                 {.newcomer = {entry.node, entry.sequence}, .native = entry.native});
    if (reached.contains(TextOf(AddressOf(entry.node)))) detector_.OnReached(entry.node.id);
  }
  barriers_.SetNodes(std::move(nodes));
  log_.Info("all nodes are there: " + bs::CountOf(options_.num_workers, "worker") + ", " +
            bs::CountOf(options_.num_servers, "server"));
  for (const Role role : {Role::kWorker, Role::kServer}) {  // the protocol's order of a group
    for (const auto& [id, peer] : peers_.all()) {
      if (peer.node.role == role) SendList(id);
    }
  }
  scope_.After(options_.timeout, [this] { WarnOfUnwrapped(); });
  detector_.Start();
  heartbeat_.Start(options_.heartbeat_interval, [this] {
    CheckSilence();
    EndForStragglers();
  });
  for (const auto& [rank, early] : std::exchange(early_, {})) {
    const bs::Status check = CheckAttach(early.node, rank);
    if (check.ok()) {
      peers_.Apply(AttachedId(rank), PeerEvent::kComes, {.newcomer = early});
    } else {
      Refuse(early.node, true, early.sequence, check);
    }
  }
}

void Coordinator::Impl::Connect(Peer* peer, const Node& node, bool native, uint64_t sequence,
                                bs::Duration patience) {
  peer->node = node;
  peer->native = native;
  peer->sequence = sequence;
  peer->successor = {};
  transport_->Connect(node.id, AddressOf(node), kSchedulerId);
  detector_.Begin(node.id, AddressOf(node), patience);
}

void Coordinator::Impl::OnAttach(const Node& node, uint64_t sequence, int32_t rank, bool repeat) {
  if (const bs::Status check = CheckAttach(node, rank); !check.ok()) {
    Refuse(node, true, sequence, check);
    return;
  }
  if (phase_ == Phase::kGathering) return OnEarlyAttach(node, sequence, rank);
  const int32_t id = AttachedId(rank);
  const Peer* const peer = FindPeer(id);
  if (peer != nullptr && AddressOf(peer->node) == AddressOf(node)) {
    if (repeat) peers_.Apply(id, PeerEvent::kAddressShared, {.sequence = sequence});
    if (!IsVacant(peer->state) && sequence <= peer->sequence) {
      peers_.Apply(id, PeerEvent::kAsksForList);  // else a late repeat
      return;
    }
  }
  peers_.Apply(id, PeerEvent::kComes, {.newcomer = {node, sequence}});
}

void Coordinator::Impl::OnEarlyAttach(const Node& node, uint64_t sequence, int32_t rank) {
  const auto [it, added] = early_.try_emplace(rank, Registrant{node, sequence});
  if (added) WatchSoon(node, true);
  if (AddressOf(it->second.node) == AddressOf(node)) {
    it->second.sequence = sequence;
  } else if (!ComesAgain(node, true)) {
    HoldAttached({node, sequence}, rank, it->second.node);
  }
}

void Coordinator::Impl::HoldAttached(const Registrant& newcomer, int32_t rank, const Node& holder) {
  Hold({newcomer, true, rank},
       bs::Status::AlreadyExists(DescribeUnranked(newcomer.node) + " cannot attach to worker " +
                                 std::to_string(rank) + ": " + DescribeUnranked(holder) +
                                 " is attached there (another process has this rank)"));
}

bs::Status Coordinator::Impl::CheckAttach(const Node& node, int32_t rank) const {
  const std::string who = DescribeUnranked(node);
  if (node.role != Role::kWorker || rank < 0 || rank >= options_.num_workers) {
    return bs::Status::InvalidArgument(who + " cannot attach as rank " + std::to_string(rank) +
                                       ": the job has " +
                                       bs::CountOf(options_.num_workers, "worker"));
  }
  if (phase_ == Phase::kGathering) return bs::Status::Ok();
  const Peer* const beside = peers_.Find(WorkerId(rank));
  if (beside != nullptr && beside->native) {
    return bs::Status::AlreadyExists(who + " cannot attach to worker " + std::to_string(rank) +
                                     ": that is a native worker itself");
  }
  if (beside != nullptr && HasLeft(beside->state)) {
    return bs::Status::Unavailable(who + " cannot attach to worker " + std::to_string(rank) +
                                   ": that has left the job");
  }
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.node.role == Role::kServer && !peer.native) {
      return bs::Status::NotFound(who + " cannot attach: " + Describe(peer.node) +
                                  " is a stock server");
    }
  }
  return bs::Status::Ok();
}

void Coordinator::Impl::Introduce(Peer* peer, const Registrant& newcomer) {
  attached_ = true;
  Node entry = newcomer.node;
  entry.id = peer->node.id;
  Connect(peer, entry, true, newcomer.sequence, options_.timeout);
  barriers_.Join(entry.id);
  NotifyServers(*peer, Describe(entry) + " attached");
}

void Coordinator::Impl::NotifyServers(const Peer& newcomer, const std::string& text) {
  const int32_t id = newcomer.node.id;
  const Op op = IsAttachedId(id) ? Op::kAttach : Op::kRegister;
  Meta news = NativeControl(Command::kAddNode, op, 0);
  news.extension.body = BodyAbout(op, RankOf(id), newcomer.incarnation);
  news.control.nodes = {newcomer.node};
  broadcast_.Send(peers_.NativeServers(), news,
                  [this, id, text, incarnation = newcomer.incarnation] {
                    if (FindPeer(id)->incarnation != incarnation) return;
                    const Peers::Outcome outcome = peers_.Apply(id, PeerEvent::kNewcomerKnown);
                    if (outcome == Peers::Outcome::kDone && !text.empty()) log_.Info(text);
                  });
}

void Coordinator::Impl::WarnOfUnwrapped() {
  if (phase_ != Phase::kRunning || StockServer() != nullptr) return;
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.native || peer.node.role != Role::kWorker) continue;
    if (FindPeer(AttachedId(RankOf(id))) != nullptr ||
        !unwrapped_.emplace(id, peer.incarnation).second) {
      continue;
    }
    log_.Warning(
        Describe(peer.node) +
        " uses MXNet's own store: not scheduled; add kvs = ScheduledKVS(kvs) (from "
        "bytescheduler.mxnet import ScheduledKVS); if it has BYTESCHEDULER_BACKEND=kvstore, "
        "which schedules over that store, unset that instead" +
        (attached_ ? "; others have wrapped theirs and have no keys in common with it, so "
                     "wrap it in every worker or in none"
                   : ""));
  }
}

void Coordinator::Impl::SendList(int32_t id) {
  const Peer& peer = *FindPeer(id);
  Meta meta;
  meta.is_control = true;
  if (peer.native) {
    const Op op = IsAttachedId(id) ? Op::kAttach : Op::kRegister;
    meta = NativeControl(Command::kAddNode, op, peer.sequence);
    meta.extension.body = BodyAbout(op, RankOf(id), peer.incarnation);
  }
  meta.control.command = Command::kAddNode;
  for (const Roster::Entry& entry : roster_.entries()) {
    meta.control.nodes.push_back(entry.node);
    Node& node = meta.control.nodes.back();
    node.is_recovery = entry.node.id == id && peer.incarnation > 0;
    if (peer.native) continue;
    node.link_rate = 0;  // no fields of a stock node's protocol
    node.first_hostname.clear();
  }
  if (IsAttachedId(id)) meta.control.nodes.push_back(peer.node);
  meta.control.nodes.push_back(OwnEntry());
  Send(id, std::move(meta));
}

Node Coordinator::Impl::OwnEntry() const {
  Node node;
  node.role = Role::kScheduler;
  node.id = kSchedulerId;
  node.hostname = root_.host;
  node.port = root_.port;
  return node;
}

void Coordinator::Impl::SendStatus(int32_t peer, uint64_t sequence, const bs::Status& status,
                                   const std::string& text) {
  Meta meta = NativeControl(Command::kNone, Op::kStatus, sequence);
  meta.extension.text = text;
  SetStatus(status, &meta.extension);
  Send(peer, std::move(meta));
}

void Coordinator::Impl::WatchSoon(const Node& node, bool native) {
  if (!native) {
    TemporaryPeer(node, native);
    return;
  }
  // A connection at once would be broken off if this node completes the job; the node would warn.
  scope_.After(options_.retry_interval / 2, [this, node] {
    if (phase_ == Phase::kGathering) TemporaryPeer(node, true);
  });
}

int32_t Coordinator::Impl::TemporaryPeer(const Node& node, bool native) {
  const auto [it, added] = temporary_.try_emplace(TextOf(AddressOf(node)));
  if (added) {
    it->second = {.node = node, .peer = next_temporary_++};
    Watch(it->second.peer, node, native);
  }
  return it->second.peer;
}

void Coordinator::Impl::Watch(int32_t peer, const Node& node, bool native) {
  // A stock node reads only the first connection of an identity while that lasts, so this short one
  // is anonymous.  It does not come back either if it is given up too soon.
  transport_->Connect(peer, AddressOf(node), native ? kSchedulerId : kEmpty);
  if (native) {
    temporary_reconnect_timer_.Watch(peer);
  } else {
    temporary_reconnect_timer_.Watch(peer, options_.heartbeat_timeout);
  }
}

void Coordinator::Impl::OnTemporaryLost(int32_t peer, const std::string& why) {
  if (phase_ != Phase::kGathering) return;
  const auto gone = std::find_if(temporary_.begin(), temporary_.end(),
                                 [peer](const auto& entry) { return entry.second.peer == peer; });
  if (gone == temporary_.end()) return;
  const Node node = gone->second.node;
  std::erase_if(early_,
                [&](const auto& entry) { return AddressOf(entry.second.node) == AddressOf(node); });
  roster_.Remove(AddressOf(node));
  const std::string who = DescribeUnranked(node);
  const std::string cause = attempts_.WhyLost(peer, AddressOf(node), why);
  log_.Warning(who + " is gone before all nodes were there (" + cause +
               "); another may take its place; " + roster_.Waiting());
  if (!attempts_.Reached(peer) && unreached_.size() < kMostUnreached) {
    unreached_[who] = who + ": " + cause;
  }
  attempts_.Forget(peer);
  transport_->Disconnect(peer, bs::Duration(0));
  temporary_.erase(gone);
}

void Coordinator::Impl::OnTemporaryConnected(int32_t peer) {
  for (const auto& [address, temporary] : temporary_) {
    if (temporary.peer == peer) unreached_.erase(DescribeUnranked(temporary.node));
  }
}

std::set<std::string> Coordinator::Impl::CloseTemporaryPeers() {
  std::set<std::string> reached;
  for (const auto& [address, temporary] : temporary_) {
    if (attempts_.Reached(temporary.peer)) reached.insert(address);
    temporary_reconnect_timer_.Forget(temporary.peer);
    attempts_.Forget(temporary.peer);
    transport_->Disconnect(temporary.peer, bs::Duration(0));
  }
  temporary_.clear();
  return reached;
}

}  // namespace ps
