// Coordinator: the scheduler node - wires its parts to each other and to the transport.
#include <chrono>
#include <utility>

#include "membership/coordinator/inbox.h"
#include "membership/coordinator/job_state.h"
#include "membership/coordinator/rendezvous.h"
#include "membership/role_limits.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {

class Coordinator::Impl {
 public:
  Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
       const bs::Logger& log, PeerTable table);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { Close(bs::Duration(0)); }

  void Start(Handler handler);
  void Abort(const bs::Status& why) {
    if (!job_.over()) shutdown_.End(why);
  }
  void Measure(bs::Metrics* metrics) const;
  void Close(bs::Duration linger);

 private:
  Transport::Handler TransportHandler();
  void OnMessage(const Message& message);
  // A peer below kFirstTemporaryId has an id; one below kFirstRefusedId waits for the others.
  void OnAttempt(int32_t peer, const std::string& attempt);
  void OnConnected(int32_t peer);
  void OnDisconnected(int32_t peer);
  void OnInboundEnded(int32_t id, bool torn);
  void OnOverflow(int32_t peer, const std::string& why);
  void OnGarbage(int32_t peer, const bs::Status& garbage);
  // All nodes are there.
  void Begin();
  void CheckSilence();
  bool Holds(PeerCondition condition, const Peer& peer, const PeerDetails& details) const;

  JobState job_;
  Handler handler_;
  Refusals refusals_;
  UnwrappedStores stores_;
  Detector detector_;
  Places places_;
  Rendezvous rendezvous_;
  Shutdown shutdown_;
  Inbox inbox_;
  bool closed_ = false;
};

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
    : job_(options, transport, executor, log, std::move(table),
           {.holds = [this](PeerCondition condition, const Peer& peer,
                            const PeerDetails& details) { return Holds(condition, peer, details); },
            .act =
                [this](PeerAction action, Peer* peer, const PeerDetails& details) {
                  if (!places_.Act(action, peer, details)) shutdown_.Act(action, peer, details);
                }}),
      refusals_(&job_),
      stores_(&job_),
      detector_(
          options, &job_.scope,
          [this](int32_t id, const std::string& why) { places_.Lose(id, why); },
          [this](int32_t id, const std::string& why) { shutdown_.OnUnheard(id, why); }),
      places_(&job_, &refusals_, &detector_, &stores_),
      rendezvous_(&job_, &refusals_, &detector_, &places_),
      shutdown_(&job_, {&refusals_, &detector_, &stores_, &places_, &rendezvous_},
                [this] { handler_.on_finished(job_.verdict); }),
      inbox_(&job_, &detector_, &places_, &shutdown_, &stores_) {
  job_.end = [this](const bs::Status& verdict) { shutdown_.End(verdict); };
}

void Coordinator::Impl::Close(bs::Duration linger) {
  if (closed_) return;
  closed_ = true;
  job_.scope.Close();
  job_.transport->Close(linger);
}

void Coordinator::Impl::Start(Handler handler) {
  handler_ = std::move(handler);
  job_.transport->Start(TransportHandler());
  Address own = job_.options.root;
  if (!job_.options.bind_host.empty()) own.host = job_.options.bind_host;
  job_.transport->Bind(own, [this](const bs::Result<int32_t>& port) {
    if (!port.ok()) {
      job_.verdict = port.status();
      shutdown_.Finish();
      return;
    }
    job_.outbox.SetPort(port.value());
    job_.log.Info("listening on " + TextOf(AddressOf(job_.outbox.own())));
    job_.scope.Post([this] { handler_.on_listening(job_.outbox.own().port); });
  });
  rendezvous_.Start([this] { Begin(); });
}

void Coordinator::Impl::Begin() {
  job_.scope.After(job_.options.timeout, [this] { stores_.Warn(); });
  detector_.Start();
  job_.heartbeat.Start(job_.options.heartbeat_interval, [this] {
    CheckSilence();
    shutdown_.CheckStragglers();
  });
}

Transport::Handler Coordinator::Impl::TransportHandler() {
  Transport::Handler handler;
  handler.on_message = [this](const Message& message) { OnMessage(message); };
  handler.knows = [this](int32_t peer) {
    return job_.peers.Find(peer) != nullptr && !detector_.IsDismissed(peer);
  };
  handler.most_bytes = [](int32_t, const Meta& meta) {
    return MostDataBytes(Role::kScheduler, meta, 0);
  };
  handler.on_garbage = [this](int32_t peer, const bs::Status& garbage) {
    OnGarbage(peer, garbage);
  };
  handler.on_overflow = [this](int32_t peer, const std::string& why) { OnOverflow(peer, why); };
  handler.on_attempt = [this](int32_t peer, const std::string& attempt) {
    OnAttempt(peer, attempt);
  };
  handler.on_connected = [this](int32_t peer) { OnConnected(peer); };
  handler.on_disconnected = [this](int32_t peer) { OnDisconnected(peer); };
  handler.on_inbound = [this](int32_t peer) { detector_.OnInbound(peer); };
  handler.on_inbound_ended = [this](int32_t peer, bool torn) { OnInboundEnded(peer, torn); };
  return handler;
}

void Coordinator::Impl::OnMessage(const Message& message) {
  if (message.meta.is_control) {
    if (message.peer == kEmpty) return rendezvous_.OnMessage(message);
    return inbox_.OnMessage(message);
  }
  // The node that has the id now did not send it.
  const bool other =
      message.meta.native() && message.meta.extension.job != JobMark(job_.options.job);
  if (other) return job_.Drop(message, kFromAnotherJob);
  inbox_.DropViolation(message, "data for the scheduler node");
}

void Coordinator::Impl::OnAttempt(int32_t peer, const std::string& attempt) {
  if (peer < kFirstTemporaryId) {
    detector_.OnAttempt(peer, attempt);
  } else if (peer < kFirstRefusedId) {
    rendezvous_.waiting()->OnAttempt(peer, attempt);
  }
}

void Coordinator::Impl::OnConnected(int32_t peer) {
  if (peer < kFirstTemporaryId) {
    detector_.OnConnected(peer);
  } else if (peer < kFirstRefusedId) {
    rendezvous_.waiting()->OnConnected(peer);
  }
}

void Coordinator::Impl::OnDisconnected(int32_t peer) {
  if (peer >= kFirstTemporaryId) return rendezvous_.waiting()->OnDisconnected(peer);
  detector_.OnDisconnected(peer);
  job_.peers.Apply(peer, PeerEvent::kDisconnected);
}

void Coordinator::Impl::OnInboundEnded(int32_t id, bool torn) {
  const Peer* const peer = job_.peers.Find(id);
  const bool stock = peer != nullptr && !peer->native && IsPresent(peer->state);
  detector_.OnInboundEnded(id, stock && job_.running() && !job_.barriers.final_done(),
                           torn && !job_.resends.SendsAgain(id));
}

void Coordinator::Impl::OnOverflow(int32_t peer, const std::string& why) {
  rendezvous_.waiting()->OnOverflow(peer, why);
  places_.Lose(peer, why);
}

void Coordinator::Impl::OnGarbage(int32_t peer, const bs::Status& garbage) {
  if (job_.peers.Find(peer) == nullptr) return;  // the transport has named it
  job_.limited_log.Warning("dropped bytes from " + DescribeSender(peer) + ": " + garbage.message());
  inbox_.OnViolation(peer, garbage.message());
}

void Coordinator::Impl::CheckSilence() {
  std::vector<int32_t> ids;
  for (const auto& [id, peer] : job_.peers.all()) {
    const bool listed = peer.state == PeerState::kListed || peer.state == PeerState::kLive;
    if (peer.native && listed) ids.push_back(id);  // stock nodes need not send heartbeats
  }
  detector_.CheckSilence(ids);
}

void Coordinator::Impl::Measure(bs::Metrics* metrics) const {
  metrics->Add("workers", 0);
  metrics->Add("servers", 0);
  for (const auto& [id, peer] : job_.peers.all()) {
    if (!IsPresent(peer.state)) continue;
    const std::string role = peer.node.role == Role::kServer ? "server" : "worker";
    if (!IsAttachedId(id)) metrics->Add(role + "s", 1);
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
      return !job_.running() || peer.node.role == Role::kServer;
    case PeerCondition::kAttachedLeft:
      return shutdown_.HasLeftBeside(peer);
    case PeerCondition::kReplaceable:
      return places_.MayReplace(peer);
    case PeerCondition::kJobRuns:
      return job_.running();
    case PeerCondition::kNeeded:
      return job_.running() && !job_.barriers.final_done();
    case PeerCondition::kSuccessorRepeats:
      return AddressOf(peer.successor.node) == AddressOf(details.newcomer.node);
    case PeerCondition::kNeverBroken:
      return detector_.NeverBroke(peer.node.id);
  }
  return false;
}

}  // namespace ps
