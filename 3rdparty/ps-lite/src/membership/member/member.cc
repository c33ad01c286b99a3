// Member: how a worker or a server joins the job - registration and the list.
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
    : context_(options, transport, executor, log),
      executor_(executor),
      retry_(&context_.scope),
      leave_retry_(&context_.scope),
      heartbeat_(&context_.scope),
      silence_(&context_.scope),
      table_(table),
      contacts_(&context_, neighbours,
                {.fail_job = [this](const bs::Status& why) { FailJob(why); },
                 .scheduler_lost = [this](const std::string& why) { OnSchedulerLost(why); }}),
      barriers_(
          &context_.scope, options.retry_interval,
          {.next_sequence = [this] { return context_.NextSequence(); },
           .send = [this](const BarrierQueue::Call& call,
                          uint64_t sequence) { SendBarrier(call, sequence); },
           .complete = [this](StatusCallback done,
                              const bs::Status& status) { Complete(std::move(done), status); }}) {
  scheduler_.role = Role::kScheduler;
  scheduler_.id = kSchedulerId;
  scheduler_.hostname = options.root.host;
  scheduler_.port = options.root.port;
}

Member::Impl::~Impl() { Close(bs::Duration(0)); }

void Member::Impl::Close(bs::Duration linger) {
  if (context_.closed()) return;
  const bool owes_ready = context_.handler.on_ready && ready_call_ != ReadyCall::kMade;
  const auto closed = bs::Status::Cancelled("the membership was closed");
  barriers_.EndAll(closed);
  EndLeave(closed);
  Apply(MemberEvent::kClose);
  context_.scope.Close();
  context_.transport->Close(linger);
  if (owes_ready) {
    ready_call_ = ReadyCall::kMade;
    context_.handler.on_ready(closed);
  }
  while (!due_.empty()) RunNextDue();
}

void Member::Impl::Start(Handler handler) {
  context_.handler = std::move(handler);
  context_.transport->Start(TransportHandler());
  context_.transport->Bind(
      {context_.options.node_host, context_.options.node_port},
      [this](const bs::Result<int32_t>& port) {
        if (!port.ok()) {
          Fail(port.status());
          return;
        }
        context_.own.port = port.value();
        last_word_ = context_.scope.Now();
        registration_ = context_.NextSequence();
        context_.log.Debug([this] {
          return "registering " + DescribeUnranked(context_.own) + " with the scheduler node at " +
                 TextOf(context_.options.root);
        });
        context_.transport->Connect(kSchedulerId, context_.options.root, kEmpty);
        WatchRegistration();
        silence_.Start(context_.options.report_interval, [this] { ReportSilence(); });
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
    // The transport has named other peers.
    if (contacts_.Knows(peer)) contacts_.DropViolation(peer, what.message());
  };
  handler.on_attempt = [this](int32_t peer, const std::string& what) {
    contacts_.OnAttempt(peer, what);
  };
  handler.on_connected = [this](int32_t peer) { OnConnected(peer); };
  handler.on_foreign = [this](int32_t peer) {
    if (peer == kSchedulerId && context_.state == MemberState::kRegistering) OnStockScheduler();
  };
  handler.on_disconnected = [this](int32_t peer) { OnDisconnected(peer); };
  handler.on_inbound = [this](int32_t peer) { contacts_.stock()->OnInbound(peer); };
  handler.on_inbound_ended = [this](int32_t peer, bool torn) {
    contacts_.stock()->OnInboundEnded(peer, torn);
  };
  return handler;
}

void Member::Impl::OnConnected(int32_t peer) {
  if (peer == kSchedulerId) scheduler_connected_ = true;
  contacts_.OnConnected(peer);
  if (peer == kSchedulerId) Register();
}

void Member::Impl::OnDisconnected(int32_t peer) {
  if (peer == kSchedulerId) scheduler_connected_ = false;
  contacts_.OnDisconnected(peer);
}

std::shared_ptr<Landing> Member::Impl::Place(int32_t peer, const Meta& meta, uint64_t size_bytes) {
  const bool known = contacts_.IsKnown(peer) || contacts_.IsBeside(peer);
  const bool data = !meta.is_control && ready_call_ == ReadyCall::kMade && known;
  const bool ours = data && !context_.OfAnotherJob(meta.extension);
  return ours && context_.handler.place ? context_.handler.place(peer, meta, size_bytes) : nullptr;
}

void Member::Impl::OnMessage(Message message) {
  if (message.meta.is_control) return OnControlMessage(message);
  if (contacts_.IsBeside(message.peer) && message.meta.native()) return Deliver(std::move(message));
  if (ready_call_ != ReadyCall::kMade || !contacts_.IsKnown(message.peer)) {
    return contacts_.stock()->TurnAway(message);
  }
  if (!message.meta.native()) {
    if (!contacts_.stock()->Take(message)) return;
  } else if (context_.OfAnotherJob(message.meta.extension)) {
    return context_.Drop(message.peer, kFromAnotherJob);
  } else if (contacts_.IsOfFormer(message)) {
    return context_.Drop(message.peer, "it is from an earlier worker in this place");
  }
  context_.handler.on_message(std::move(message));
}

// That worker may hear of the start barrier before this worker does.
void Member::Impl::Deliver(Message message) {
  if (context_.OfAnotherJob(message.meta.extension))
    return context_.Drop(message.peer, kFromAnotherJob);
  if (ready_call_ != ReadyCall::kMade) {
    early_.push_back(std::move(message));
    return;
  }
  context_.handler.on_message(std::move(message));
}

void Member::Impl::OnControlMessage(const Message& message) {
  const Meta& meta = message.meta;
  const bool native = meta.native();
  if (!native && contacts_.IsKnown(message.peer) && meta.control.command == Command::kAck) {
    contacts_.stock()->Take(message);
    return;
  }
  const bs::Result<SchedulerBody> body =
      DecodeSchedulerBody(meta.extension.op, meta.extension.body);
  if (!body.ok()) return contacts_.DropViolation(message.peer, body.status().message());
  const SchedulerBody& said = body.value();
  if (native) {
    if (message.peer == kSchedulerId) LearnJob(meta, said.job);
    // News of an end may come before the first response, which repeats it.
    if (!context_.job && meta.extension.op == Op::kStatus) return;
    if (context_.job != said.job) return context_.Drop(message.peer, kFromAnotherJob);
  }
  if (message.peer != kSchedulerId) {
    return contacts_.DropViolation(message.peer, "control that is not the scheduler node's");
  }
  if (!native) return OnStockControl(message);
  last_word_ = context_.scope.Now();
  OnControl(meta, said);
}

// Only the response to our own registration counts.  A node of another job may have had our
// address, and its scheduler node may still send there.
void Member::Impl::LearnJob(const Meta& meta, uint64_t job) {
  const Extension& extension = meta.extension;
  const bool answer = meta.control.command == Command::kAddNode || extension.op == Op::kStatus;
  if (context_.state == MemberState::kRegistering && answer && extension.sequence == registration_)
    context_.job = job;
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
      contacts_.DropViolation(kSchedulerId, "unexpected control command");
  }
}

void Member::Impl::OnOperation(const Meta& meta, const SchedulerBody& said) {
  const Extension& extension = meta.extension;
  const bool about_node = meta.control.nodes.size() == 1;
  switch (extension.op) {
    case Op::kStatus:
      return OnStatus(extension);
    case Op::kShutdown:
      context_.SendControl(NativeControl(Command::kAck, Op::kNone, extension.sequence));
      return OnShutdown(extension);
    case Op::kLeave:
      if (about_node) return contacts_.OnNews(meta, said);
      if (extension.sequence == leave_sequence_) EndLeave(bs::Status::Ok());
      return;
    case Op::kVacate:
      if (about_node) return contacts_.OnNews(meta, said);
      break;
    default:
      break;
  }
  contacts_.DropViolation(kSchedulerId, "unexpected operation");
}

void Member::Impl::Register() {
  if (context_.state != MemberState::kRegistering || std::exchange(registers_, true)) return;
  if (context_.stock_scheduler) return RegisterWithStock();
  SendRegistration(Command::kAddNode);
  // A stock scheduler node that the transport does not recognise counts every ADD_NODE, but drops
  // an ACK.
  retry_.Start(context_.options.retry_interval, [this] { SendRegistration(Command::kAck); });
}

void Member::Impl::SendRegistration(Command command) {
  const Op op = context_.options.attach ? Op::kAttach : Op::kRegister;
  Meta meta = NativeControl(command, op, registration_);
  meta.control.nodes = {context_.own};
  MemberBody body;
  body.rank = context_.options.wanted_rank;
  body.settings = context_.options.settings;
  body.yields = context_.options.yields && !context_.options.attach;
  context_.SendControl(std::move(meta), std::move(body));
}

void Member::Impl::WatchRegistration() {
  // While the scheduler node is alive it reports why the job does not begin, so we wait on.
  const bool heard = !last_text_.empty();
  const bs::Duration limit = heard ? context_.options.timeout : context_.options.UntilAllThere();
  const bs::Duration left = last_word_ + limit - context_.scope.Now();
  if (left > bs::Duration(0)) {
    // A first response makes the limit shorter.
    context_.scope.After(std::min(left, context_.options.timeout), [this] {
      if (context_.state == MemberState::kRegistering) WatchRegistration();
    });
    return;
  }
  Fail(bs::Status::DeadlineExceeded("no response from the scheduler node at " +
                                    TextOf(context_.options.root) + " in " + TextOf(limit) +
                                    AboutScheduler() +
                                    (last_text_.empty() ? "" : "; it said last: " + last_text_)));
}

std::string Member::Impl::AboutScheduler() const {
  if (scheduler_connected_) return ": a process there accepts connections, but does not respond";
  const std::string latest = contacts_.attempts().Latest(kSchedulerId);
  if (contacts_.attempts().Reached(kSchedulerId)) return "";
  if (!latest.empty()) return " (latest attempt: " + latest + ")";
  const std::string& found = context_.options.root_found;
  if (found.empty()) return "";
  const bool name = found != context_.options.root.host;
  return " (" +
         (name ? context_.options.root.host + " is " + found + ", and no" : std::string("no")) +
         " connection came up)";
}

void Member::Impl::ReportSilence() {
  if (context_.state != MemberState::kRegistering) return silence_.Stop();
  // A live scheduler node reports every interval which nodes are missing.
  const bool quiet = context_.scope.Now() >= last_word_ + 2 * context_.options.report_interval;
  if (scheduler_connected_ && !quiet) return;
  context_.log.Info(
      "waiting for the scheduler node at " + TextOf(context_.options.root) +
      (scheduler_connected_ ? ": it is there but does not respond" : AboutScheduler()));
}

void Member::Impl::OnStatus(const Extension& extension) {
  if (context_.state != MemberState::kRegistering) {
    barriers_.OnWaiting(extension.sequence, extension.text);
    // A refusal is repeated only if our acknowledgement was lost.
    if (extension.status == 0 || context_.view.own_id != kEmpty) return;
  }
  if (extension.status == 0) {
    last_text_ = extension.text;
    if (std::exchange(logs_status_, !logs_status_)) {
      context_.log.Info("the scheduler node is " + extension.text);
    }
    return;
  }
  Meta heard = NativeControl(Command::kAck, Op::kNone, extension.sequence);
  heard.control.nodes = {context_.own};
  context_.SendControl(std::move(heard));
  Fail(StatusOf(extension));
}

void Member::Impl::OnAddNode(const Meta& meta, const SchedulerBody& said) {
  const bool newcomer = meta.extension.op == Op::kAttach || meta.control.nodes.size() == 1;
  if (newcomer && context_.options.role == Role::kServer) {
    if (context_.state == MemberState::kRegistering || meta.control.nodes.size() != 1) return;
    return contacts_.OnNews(meta, said);
  }
  if (context_.state != MemberState::kRegistering || meta.extension.sequence != registration_)
    return;
  bs::Result<View> view = CheckList(meta);
  if (view.ok()) {
    view.value().incarnation = said.incarnation;
    view.value().job = context_.job.value_or(0);
    view.value().all_native = said.native;
    Enter(std::move(view.value()));
  } else {
    context_.Drop(kSchedulerId, view.status().message());
  }
}

bs::Result<View> Member::Impl::CheckList(const Meta& meta) const {
  View view;
  view.num_workers = context_.options.num_workers;
  view.num_servers = context_.options.num_servers;
  view.nodes = meta.control.nodes;
  for (const Node& node : view.nodes) {
    if (const bs::Status check = CheckNode(node); !check.ok()) return check;
    const int32_t limit = node.role == Role::kServer ? view.num_servers : view.num_workers;
    if (!IdFitsRole(node.id, node.role) || RankOf(node.id) >= limit) {
      return bs::Status::InvalidArgument("a list with id " + std::to_string(node.id) + " for " +
                                         DescribeUnranked(node));
    }
    const bool own = AddressOf(node) == AddressOf(context_.own) && node.role == context_.own.role;
    if (own && IsAttachedId(node.id) == context_.options.attach) view.own_id = node.id;
  }
  if (view.own_id == kEmpty) return bs::Status::InvalidArgument("a list without ourselves");
  view.rank = RankOf(view.own_id);
  return view;
}

void Member::Impl::Enter(View view) {
  context_.view = std::move(view);
  Apply(MemberEvent::kList);
}

void Member::Impl::Connect() {
  retry_.Stop();
  context_.own.id = context_.view.own_id;
  context_.log.Debug([this] {
    return "registered as " + Describe(context_.own) + ", one of " +
           bs::CountOf(context_.view.nodes.size(), "node");
  });
  contacts_.Connect();
  pause_detector_.emplace(context_.options.heartbeat_interval, context_.options.heartbeat_timeout,
                          context_.scope.Now());
  heartbeat_.Start(context_.options.heartbeat_interval, [this] {
    CheckScheduler();
    SendHeartbeat();
  });
  JoinStartBarrier();
}

void Member::Impl::JoinStartBarrier() {
  const bool server = context_.own.role == Role::kServer;
  // A node that takes a lost node's place finds the job started.
  const bool started = context_.options.attach || context_.view.incarnation > 0;
  // A server is ready before it joins the barrier, a worker after it.  So no worker's request
  // reaches a server that is not ready.
  if (started || server) Apply(MemberEvent::kStarted);
  if (started) return;
  BarrierQueue::Call start;
  start.group = kEveryone;
  start.repeats = !context_.stock_scheduler;
  start.limit = BarrierQueue::Limit{context_.options.timeout, "BYTESCHEDULER_TIMEOUT"};
  start.done = [this, server](const bs::Status& status) {
    if (context_.over() || context_.closed()) return;
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

}  // namespace ps
