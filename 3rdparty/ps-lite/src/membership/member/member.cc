// Member: how a worker or a server joins the job - registration, the list, newcomers, violations.
#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "membership/member/member_impl.h"
#include "wire/control.h"

namespace ps {

Member::Member(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
               const bs::Logger& log)
    : Member(options, transport, executor, log, MemberTable(), NeighbourTable()) {}
Member::Member(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
               const bs::Logger& log, const MemberTable& table, const NeighbourTable& neighbours)
    : impl_(std::make_unique<Impl>(options, transport, executor, log, table, neighbours)) {}
Member::~Member() = default;
void Member::Start(Handler handler) { impl_->Start(std::move(handler)); }
void Member::Barrier(int32_t group, StatusCallback done) { impl_->Barrier(group, std::move(done)); }
void Member::JoinFinalBarrier() { impl_->JoinFinalBarrier(); }
void Member::Leave(const std::string& reason, StatusCallback done) {
  impl_->Leave(reason, std::move(done));
}
void Member::ReportFailure(const bs::Status& why) { impl_->ReportFailure(why); }
void Member::ReportViolation(int32_t peer, const std::string& what) {
  impl_->OnViolation(peer, what);
}
void Member::Send(Message message) { impl_->Send(std::move(message)); }
void Member::Close(bs::Duration linger) { impl_->Close(linger); }
const View& Member::view() const { return impl_->view(); }

std::string HostOf(const Node& node) {
  const std::string& host = node.first_hostname.empty() ? node.hostname : node.first_hostname;
  const bool loopback = host.starts_with("127.") || host == "::1" || host == "localhost";
  return loopback ? "127.0.0.1" : host;
}

Member::Impl::Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
                   const bs::Logger& log, const MemberTable& table,
                   const NeighbourTable& neighbours)
    : options_(options),
      transport_(transport),
      executor_(executor),
      log_(log),
      scope_(executor),
      reconnect_timer_(&scope_, options.timeout, options.reconnect_grace,
                       [this](int32_t id, const std::string& why) { OnUnconnected(id, why); }),
      inbound_(&scope_, options.reconnect_grace,
               [this](int32_t id, const std::string& why) { OnUnheard(id, why); }),
      suspicion_timer_(&scope_, options.straggler_timeout,
                       [this](int32_t id, const std::string& why) { OnUnheard(id, why); }),
      retry_(&scope_),
      leave_retry_(&scope_),
      heartbeat_(&scope_),
      silence_(&scope_),
      limited_log_(executor, log),
      table_(table),
      // Grows from one member of an address to the next: a late repeat of an earlier member does
      // not count for the present member.
      next_sequence_(static_cast<uint64_t>(executor->Now().time_since_epoch().count()) + 1),
      neighbours_([this](NeighbourCondition condition,
                         const Neighbour& neighbour) { return Holds(condition, neighbour); },
                  [this](NeighbourAction action, Neighbour* neighbour,
                         const NeighbourDetails& details) { Act(action, neighbour, details); },
                  neighbours),
      barriers_(
          &scope_, options.retry_interval,
          {.next_sequence = [this] { return NextSequence(); },
           .send = [this](const BarrierQueue::Call& call,
                          uint64_t sequence) { SendBarrier(call, sequence); },
           .complete = [this](StatusCallback done,
                              const bs::Status& status) { Complete(std::move(done), status); }}) {
  own_.role = options.role;
  own_.hostname = options.node_host;
  own_.link_rate = options.link_rate;
  scheduler_.role = Role::kScheduler;
  scheduler_.id = kSchedulerId;
  scheduler_.hostname = options.root.host;
  scheduler_.port = options.root.port;
}

Member::Impl::~Impl() { Close(bs::Duration(0)); }

void Member::Impl::Close(bs::Duration linger) {
  if (state_ == MemberState::kClosed) return;
  const bool owes_ready = handler_.on_ready && ready_call_ != ReadyCall::kMade;
  const auto closed = bs::Status::Cancelled("the membership was closed");
  barriers_.EndAll(closed);
  EndLeave(closed);
  Apply(MemberEvent::kClose);
  scope_.Close();
  transport_->Close(linger);
  if (owes_ready) {
    ready_call_ = ReadyCall::kMade;
    handler_.on_ready(closed);
  }
  while (!due_.empty()) RunNextDue();
}

void Member::Impl::Start(Handler handler) {
  handler_ = std::move(handler);
  transport_->Start(TransportHandler());
  transport_->Bind({options_.node_host, options_.node_port},
                   [this](const bs::Result<int32_t>& port) {
                     if (!port.ok()) {
                       Fail(port.status());
                       return;
                     }
                     own_.port = port.value();
                     last_word_ = scope_.Now();
                     registration_ = NextSequence();
                     log_.Debug([this] {
                       return "registering " + DescribeUnranked(own_) +
                              " with the scheduler node at " + TextOf(options_.root);
                     });
                     transport_->Connect(kSchedulerId, options_.root, kEmpty);
                     WatchRegistration();
                     silence_.Start(options_.report_interval, [this] { ReportSilence(); });
                   });
}

Transport::Handler Member::Impl::TransportHandler() {
  Transport::Handler handler;
  handler.on_message = [this](Message message) { OnMessage(std::move(message)); };
  handler.place = [this](int32_t peer, const Meta& meta, uint64_t size_bytes) {
    return Place(peer, meta, size_bytes);
  };
  SetLimits(&handler);
  handler.on_garbage = [this](int32_t peer, const bs::Status& what) {
    if (Knows(peer)) DropViolation(peer, what.message());  // else the transport has named it
  };
  handler.on_attempt = [this](int32_t peer, const std::string& what) {
    attempts_.OnAttempt(peer, what);
  };
  handler.on_connected = [this](int32_t peer) { OnConnected(peer); };
  handler.on_foreign = [this](int32_t peer) {
    if (peer == kSchedulerId && state_ == MemberState::kRegistering) OnStockScheduler();
  };
  handler.on_disconnected = [this](int32_t peer) { OnDisconnected(peer); };
  handler.on_inbound = [this](int32_t peer) { inbound_.OnOpened(peer); };
  handler.on_inbound_ended = [this](int32_t peer, bool torn) { OnInboundEnded(peer, torn); };
  return handler;
}

void Member::Impl::OnConnected(int32_t peer) {
  if (peer == kSchedulerId) scheduler_connected_ = true;
  attempts_.OnConnected(peer);
  reconnect_timer_.OnConnected(peer);
  if (peer == kSchedulerId) Register();
}

void Member::Impl::OnDisconnected(int32_t peer) {
  if (peer == kSchedulerId) scheduler_connected_ = false;
  reconnect_timer_.OnDisconnected(peer);
  Suspect(peer);
}

std::shared_ptr<Landing> Member::Impl::Place(int32_t peer, const Meta& meta, uint64_t size_bytes) {
  const bool known = neighbours_.IsKnown(peer) || IsBeside(peer);
  const bool data = !meta.is_control && ready_call_ == ReadyCall::kMade && known;
  const bool ours = data && !OfAnotherJob(meta.extension);
  return ours && handler_.place ? handler_.place(peer, meta, size_bytes) : nullptr;
}

void Member::Impl::OnMessage(Message message) {
  if (message.meta.is_control) return OnControlMessage(message);
  if (IsBeside(message.peer) && message.meta.native()) return Deliver(std::move(message));
  if (ready_call_ != ReadyCall::kMade || !neighbours_.IsKnown(message.peer)) {
    return TurnAway(message);
  }
  if (!message.meta.native()) {
    if (!TakeStock(message)) return;
  } else if (OfAnotherJob(message.meta.extension)) {
    return Drop(message.peer, kFromAnotherJob);
  } else if (IsOfFormer(message)) {
    return Drop(message.peer, "it is from an earlier worker in this place");
  }
  handler_.on_message(std::move(message));
}

// That worker may hear of the start barrier before this worker does.
void Member::Impl::Deliver(Message message) {
  if (OfAnotherJob(message.meta.extension)) return Drop(message.peer, kFromAnotherJob);
  if (ready_call_ != ReadyCall::kMade) {
    early_.push_back(std::move(message));
    return;
  }
  handler_.on_message(std::move(message));
}

bool Member::Impl::IsOfFormer(const Message& message) const {
  const uint64_t incarnation = neighbours_.IncarnationOf(message.peer);
  return own_.role == Role::kServer && incarnation > 0 &&
         message.meta.extension.incarnation != incarnation;
}

void Member::Impl::OnControlMessage(const Message& message) {
  const Meta& meta = message.meta;
  const bool native = meta.native();
  if (!native && neighbours_.IsKnown(message.peer) && meta.control.command == Command::kAck) {
    TakeStock(message);
    return;
  }
  const bs::Result<SchedulerBody> body =
      DecodeSchedulerBody(meta.extension.op, meta.extension.body);
  if (!body.ok()) return DropViolation(message.peer, body.status().message());
  const SchedulerBody& said = body.value();
  if (native) {
    if (message.peer == kSchedulerId) LearnJob(meta, said.job);
    // News of an end may come before the first response, which repeats it.
    if (!job_ && meta.extension.op == Op::kStatus) return;
    if (job_ != said.job) return Drop(message.peer, kFromAnotherJob);
  }
  if (message.peer != kSchedulerId) {
    return DropViolation(message.peer, "control that is not the scheduler node's");
  }
  if (!native) return OnStockControl(message);
  last_word_ = scope_.Now();
  OnControl(meta, said);
}

// Only the response to our own registration counts.  A node of another job may have had our
// address, and its scheduler node may still send there.
void Member::Impl::LearnJob(const Meta& meta, uint64_t job) {
  const Extension& extension = meta.extension;
  const bool answer = meta.control.command == Command::kAddNode || extension.op == Op::kStatus;
  if (state_ == MemberState::kRegistering && answer && extension.sequence == registration_)
    job_ = job;
}

void Member::Impl::OnControl(const Meta& meta, const SchedulerBody& said) {
  const Extension& extension = meta.extension;
  switch (meta.control.command) {
    case Command::kAddNode:
      return OnAddNode(meta, said);
    case Command::kBarrier:
      return barriers_.OnEnd(extension.sequence, StatusOf(extension));
    case Command::kHeartbeat:
      if (extension.op == Op::kShutdown) OnShutdown(extension);
      return;
    case Command::kNone:
      return OnOperation(meta, said);
    default:
      DropViolation(kSchedulerId, "unexpected control command");
  }
}

void Member::Impl::OnOperation(const Meta& meta, const SchedulerBody& said) {
  const Extension& extension = meta.extension;
  const bool about_node = meta.control.nodes.size() == 1;
  switch (extension.op) {
    case Op::kStatus:
      return OnStatus(extension);
    case Op::kShutdown:
      SendControl(NativeControl(Command::kAck, Op::kNone, extension.sequence));
      return OnShutdown(extension);
    case Op::kLeave:
      if (about_node) return OnNotice(meta, said);
      if (extension.sequence == leave_sequence_) EndLeave(bs::Status::Ok());
      return;
    case Op::kVacate:
      if (about_node) return OnNotice(meta, said);
      break;
    default:
      break;
  }
  DropViolation(kSchedulerId, "unexpected operation");
}

void Member::Impl::OnNotice(const Meta& meta, const SchedulerBody& said) {
  if (!IsNews(meta)) return;
  const Node& node = meta.control.nodes.front();
  if (meta.extension.op == Op::kVacate) {
    OnWorkerVacant(node, said);
  } else {
    OnWorkerLeft(node, meta.extension.text);
  }
}

void Member::Impl::Register() {
  if (state_ != MemberState::kRegistering || std::exchange(registers_, true)) return;
  if (stock_scheduler_) return RegisterWithStock();
  SendRegistration(Command::kAddNode);
  // A stock scheduler node that the transport does not recognise counts every ADD_NODE, but drops
  // an ACK.
  retry_.Start(options_.retry_interval, [this] { SendRegistration(Command::kAck); });
}

void Member::Impl::SendRegistration(Command command) {
  const Op op = options_.attach ? Op::kAttach : Op::kRegister;
  Meta meta = NativeControl(command, op, registration_);
  meta.control.nodes = {own_};
  MemberBody body;
  body.rank = options_.wanted_rank;
  body.settings = options_.settings;
  body.yields = options_.yields && !options_.attach;
  SendControl(std::move(meta), std::move(body));
}

void Member::Impl::WatchRegistration() {
  // While the scheduler node is alive it reports why the job does not begin, so we wait on.
  const bool heard = !last_text_.empty();
  const bs::Duration limit = heard ? options_.timeout : options_.UntilAllThere();
  const bs::Duration left = last_word_ + limit - scope_.Now();
  if (left > bs::Duration(0)) {
    // A first response makes the limit shorter.
    scope_.After(std::min(left, options_.timeout), [this] {
      if (state_ == MemberState::kRegistering) WatchRegistration();
    });
    return;
  }
  Fail(bs::Status::DeadlineExceeded(
      "no response from the scheduler node at " + TextOf(options_.root) + " in " + TextOf(limit) +
      AboutScheduler() + (last_text_.empty() ? "" : "; it said last: " + last_text_)));
}

std::string Member::Impl::AboutScheduler() const {
  if (scheduler_connected_) return ": a process there accepts connections, but does not respond";
  const std::string latest = attempts_.Latest(kSchedulerId);
  if (attempts_.Reached(kSchedulerId)) return "";
  if (!latest.empty()) return " (latest attempt: " + latest + ")";
  const std::string& found = options_.root_found;
  if (found.empty()) return "";
  const bool name = found != options_.root.host;
  return " (" + (name ? options_.root.host + " is " + found + ", and no" : std::string("no")) +
         " connection came up)";
}

void Member::Impl::ReportSilence() {
  if (state_ != MemberState::kRegistering) return silence_.Stop();
  // A live scheduler node reports every interval which nodes are missing.
  const bool quiet = scope_.Now() >= last_word_ + 2 * options_.report_interval;
  if (scheduler_connected_ && !quiet) return;
  log_.Info("waiting for the scheduler node at " + TextOf(options_.root) +
            (scheduler_connected_ ? ": it is there but does not respond" : AboutScheduler()));
}

void Member::Impl::OnStatus(const Extension& extension) {
  if (state_ != MemberState::kRegistering) {
    barriers_.OnWaiting(extension.sequence, extension.text);
    // A refusal is repeated only if our acknowledgement was lost.
    if (extension.status == 0 || view_.own_id != kEmpty) return;
  }
  if (extension.status == 0) {
    last_text_ = extension.text;
    if (std::exchange(logs_status_, !logs_status_)) {
      log_.Info("the scheduler node is " + extension.text);
    }
    return;
  }
  Meta heard = NativeControl(Command::kAck, Op::kNone, extension.sequence);
  heard.control.nodes = {own_};
  SendControl(std::move(heard));
  Fail(StatusOf(extension));
}

void Member::Impl::OnAddNode(const Meta& meta, const SchedulerBody& said) {
  const bool newcomer = meta.extension.op == Op::kAttach || meta.control.nodes.size() == 1;
  if (newcomer && options_.role == Role::kServer) {
    if (state_ == MemberState::kRegistering || meta.control.nodes.size() != 1) return;
    if (IsNews(meta)) OnNewcomer(meta.control.nodes.front(), said.incarnation);
    return;
  }
  if (state_ != MemberState::kRegistering || meta.extension.sequence != registration_) return;
  bs::Result<View> view = CheckList(meta);
  if (view.ok()) {
    view.value().incarnation = said.incarnation;
    view.value().job = job_.value_or(0);
    view.value().all_native = said.native;
    Enter(std::move(view.value()));
  } else {
    Drop(kSchedulerId, view.status().message());
  }
}

bs::Result<View> Member::Impl::CheckList(const Meta& meta) const {
  View view;
  view.num_workers = options_.num_workers;
  view.num_servers = options_.num_servers;
  view.nodes = meta.control.nodes;
  for (const Node& node : view.nodes) {
    if (const bs::Status check = CheckNode(node); !check.ok()) return check;
    const int32_t limit = node.role == Role::kServer ? view.num_servers : view.num_workers;
    if (!IdFitsRole(node.id, node.role) || RankOf(node.id) >= limit) {
      return bs::Status::InvalidArgument("a list with id " + std::to_string(node.id) + " for " +
                                         DescribeUnranked(node));
    }
    const bool own = AddressOf(node) == AddressOf(own_) && node.role == own_.role;
    if (own && IsAttachedId(node.id) == options_.attach) view.own_id = node.id;
  }
  if (view.own_id == kEmpty) return bs::Status::InvalidArgument("a list without ourselves");
  view.rank = RankOf(view.own_id);
  return view;
}

void Member::Impl::Enter(View view) {
  view_ = std::move(view);
  Apply(MemberEvent::kList);
}

void Member::Impl::Connect() {
  retry_.Stop();
  own_.id = view_.own_id;
  log_.Debug([this] {
    return "registered as " + Describe(own_) + ", one of " +
           bs::CountOf(view_.nodes.size(), "node");
  });
  for (const Node& node : view_.nodes) {
    const bool other_side = node.role != own_.role && node.role != Role::kScheduler;
    if (other_side) neighbours_.Apply(node, NeighbourEvent::kListed);
  }
  if (options_.joins_host && view_.all_native) ConnectBeside();
  // The configured address works here; the address in the list may only work for the scheduler
  // node.
  transport_->Connect(kSchedulerId, options_.root, own_.id);
  reconnect_timer_.Watch(kSchedulerId);
  pause_detector_.emplace(options_.heartbeat_interval, options_.heartbeat_timeout, scope_.Now());
  heartbeat_.Start(options_.heartbeat_interval, [this] {
    CheckScheduler();
    SendHeartbeat();
  });
  JoinStartBarrier();
}

void Member::Impl::ConnectBeside() {
  const auto own = std::find_if(view_.nodes.begin(), view_.nodes.end(),
                                [this](const Node& node) { return node.id == own_.id; });
  // Nothing of a job of one host crosses a link.
  const auto elsewhere = [&](const Node& node) {
    return node.role != Role::kScheduler && HostOf(node) != HostOf(*own);
  };
  if (std::none_of(view_.nodes.begin(), view_.nodes.end(), elsewhere)) return;
  for (const Node& node : view_.nodes) {
    const bool worker = node.role == Role::kWorker && !IsAttachedId(node.id);
    if (!worker || node.id == own_.id || HostOf(node) != HostOf(*own)) continue;
    beside_.emplace(node.id, node);
    transport_->Connect(node.id, AddressOf(node), own_.id);
    reconnect_timer_.Watch(node.id);
  }
}

void Member::Impl::JoinStartBarrier() {
  const bool server = own_.role == Role::kServer;
  // A node that takes a lost node's place finds the job started.
  const bool started = options_.attach || view_.incarnation > 0;
  // A server is ready before it joins the barrier, a worker after it.  So no worker's request
  // reaches a server that is not ready.
  if (started || server) Apply(MemberEvent::kStarted);
  if (started) return;
  BarrierQueue::Call start;
  start.group = kEveryone;
  start.repeats = !stock_scheduler_;
  start.limit = BarrierQueue::Limit{options_.timeout, "BYTESCHEDULER_TIMEOUT"};
  start.done = [this, server](const bs::Status& status) {
    if (IsOver(state_) || state_ == MemberState::kClosed) return;
    if (!status.ok()) {
      report_ = status;
      SendHeartbeat();
      Fail(status);
    } else if (!server) {
      Apply(MemberEvent::kStarted);
    }
  };
  barriers_.Add(std::move(start));
}

void Member::Impl::OnNewcomer(const Node& node, uint64_t incarnation) {
  const bool expected = IsAttachedId(node.id) || neighbours_.IncarnationOf(node.id) > 0;
  const bool sane = CheckNode(node).ok() && node.role == Role::kWorker && expected &&
                    IdFitsRole(node.id, node.role) && RankOf(node.id) < options_.num_workers;
  if (!sane) {
    DropViolation(kSchedulerId, "news of an impossible worker");
    return;
  }
  if (incarnation > 0) neighbours_.At(node.id)->incarnation = incarnation;
  dismissed_.erase(node.id);
  attempts_.Forget(node.id);
  neighbours_.Apply(node, NeighbourEvent::kComes);
}

bool Member::Impl::IsNews(const Meta& meta) {
  SendControl(NativeControl(Command::kAck, Op::kNone, meta.extension.sequence));
  uint64_t& latest = neighbours_.At(meta.control.nodes.front().id)->notice;
  if (meta.extension.sequence <= latest) return false;
  latest = meta.extension.sequence;
  return true;
}

void Member::Impl::SendControl(Meta meta, MemberBody body) {
  Message message;
  message.peer = kSchedulerId;
  message.meta = std::move(meta);
  if (message.meta.native()) {
    body.job = job_.value_or(0);
    body.incarnation = view_.incarnation;
    message.meta.extension.body = Encode(body);
  }
  transport_->Send(std::move(message));
}

void Member::Impl::Drop(int32_t peer, const std::string& why) {
  limited_log_.Warning("dropped a message from " + DescribeSender(peer) + ": " + why);
}

void Member::Impl::DropViolation(int32_t peer, const std::string& why) {
  Drop(peer, why);
  OnViolation(peer, why);
}

void Member::Impl::OnViolation(int32_t peer, const std::string& what) {
  const bool in_job = peer == kSchedulerId ? !scheduler_lost_ : neighbours_.IsKnown(peer);
  if (!in_job || !TakesPart(state_) || !violations_.Add(peer, scope_.Now())) return;
  dismissed_.insert(peer);
  reconnect_timer_.Forget(peer);
  OnLost(peer, ViolationLimiter::Why(what));
}

}  // namespace ps
